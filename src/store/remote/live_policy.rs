//! A quota that changes while the fleet runs.
//!
//! A change is stored beside the states of the policy: the quota that all limiters were configured
//! with, and the one that replaces it. Every limiter in use reads it once per `REFRESH_INTERVAL`,
//! beside its decisions, which do not wait for it. A limiter that was configured with another quota,
//! as after a rollout, ignores the change.

use std::{future::Future, sync::Arc, time::Duration};

use super::{deny_cache::DenyCache, task::runtime};
use crate::algorithm::Algorithm;
use crate::clock::Tick;
use crate::error::{ConfigError, StoreError};
use crate::quota::Quota;
use crate::sync::{AtomicU64, Ordering, Swap};

/// Less than the second that is promised, so that there is time for the reply.
const REFRESH_INTERVAL: Duration = Duration::from_millis(800);

/// An algorithm and what executes its calls, in one store.
pub(crate) trait Policy: Sized + Send + Sync {
    type Algorithm: Algorithm;

    /// The kind of store, as errors name it.
    const STORE: &'static str;

    fn algorithm(&self) -> &Self::Algorithm;

    /// The same limit with another algorithm.
    fn with_algorithm(&self, algorithm: Self::Algorithm) -> Self;

    /// The algorithm with parameters that the store can represent.
    fn prepared(algorithm: Self::Algorithm) -> Result<Self::Algorithm, ConfigError>;

    /// Whether the breaker of the server of the stored change is open.
    fn is_unavailable(&self) -> bool;

    /// The stored change; empty if there is none.
    fn load_change(&self) -> impl Future<Output = Result<String, StoreError>> + Send;

    /// Stores a change, or removes it.
    fn store_change(
        &self,
        change: Option<String>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// The policy that is active now. A call ends with the policy that it began with.
#[derive(Debug)]
pub(crate) struct LivePolicy<P: Policy> {
    configured: P::Algorithm,
    active: Swap<P>,
    /// When the change was last read, in nanoseconds; 0 means never.
    refreshed_at: AtomicU64,
    /// Counts changes made here: a value read before one does not undo it.
    changes: AtomicU64,
}

impl<P: Policy> LivePolicy<P> {
    pub(crate) fn new(configured: P) -> Self {
        Self {
            configured: configured.algorithm().clone(),
            active: Swap::new(configured),
            refreshed_at: AtomicU64::new(0),
            changes: AtomicU64::new(0),
        }
    }

    pub(crate) fn active(&self) -> Arc<P> {
        self.active.get()
    }

    /// Whether a refresh is due. If so, the caller has to run it. Never due while the server does
    /// not reply.
    pub(crate) fn is_refresh_due(&self, now: Tick) -> bool {
        let last = self.refreshed_at.load(Ordering::Relaxed);
        let is_due = last == 0 || now.since(Tick::from_nanos(last)) >= REFRESH_INTERVAL;
        is_due
            && !self.active().is_unavailable()
            && self
                .refreshed_at
                .compare_exchange(
                    last,
                    now.as_nanos().max(1),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok()
    }

    /// Adopts the stored quota, if the server replies.
    pub(crate) async fn refresh(&self, deny_cache: Option<&DenyCache>) {
        let before = self.changes.load(Ordering::Acquire);
        let Ok(stored) = self.active().load_change().await else {
            return;
        };
        let configured = self.configured.quota();
        let quota = stored
            .split_once(" -> ")
            .filter(|(from, _)| *from == configured.to_string())
            .and_then(|(_, to)| to.parse().ok())
            .unwrap_or(configured);
        if self.changes.load(Ordering::Acquire) == before {
            // Another version of the program may store a quota that this one cannot represent.
            if let Ok(algorithm) = self.with_quota(quota) {
                self.replace_algorithm(algorithm, deny_cache);
            }
        }
    }

    /// Asks the store for a change, to see whether it replies.
    pub(crate) async fn ready(&self) -> Result<(), StoreError> {
        self.active().load_change().await.map(drop)
    }

    /// Changes the quota of the fleet.
    pub(crate) async fn set_quota(
        &self,
        quota: Quota,
        deny_cache: Option<&DenyCache>,
    ) -> Result<(), StoreError> {
        let algorithm = self.with_quota(quota)?;
        runtime(P::STORE)?;
        let configured = self.configured.quota();
        let change = (quota != configured).then(|| format!("{configured} -> {quota}"));
        self.active().store_change(change).await?;
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.replace_algorithm(algorithm, deny_cache);
        Ok(())
    }

    fn with_quota(&self, quota: Quota) -> Result<P::Algorithm, StoreError> {
        if quota == self.configured.quota() {
            return Ok(self.configured.clone());
        }
        let changed = self.configured.with_quota(quota);
        changed
            .and_then(P::prepared)
            .map_err(|error| StoreError::new(error.to_string(), false))
    }

    fn replace_algorithm(&self, algorithm: P::Algorithm, deny_cache: Option<&DenyCache>) {
        let active = self.active();
        if algorithm.quota() == active.algorithm().quota() {
            return;
        }
        self.active.set(active.with_algorithm(algorithm));
        if let Some(deny_cache) = deny_cache {
            deny_cache.invalidate_all();
        }
    }
}
