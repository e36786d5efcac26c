//! A quota that changes while the fleet runs.
//!
//! Whoever changes it stores, at a key of the policy, the quota that all were configured with and
//! the one that holds instead. Every limiter that is in use looks there once a second, beside its
//! decisions: they wait for nothing and cost nothing more. One that was configured otherwise, as
//! after a rollout, takes no notice.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use redis::Value;
use tokio::runtime::Handle;

use super::{
    batch::{self, Batcher},
    deny_cache::DenyCache,
    params::Call,
    pool::ConnectionPool,
    script::{Args, Program, Scripted},
};
use crate::clock::Tick;
use crate::error::StoreError;
use crate::quota::Quota;
use crate::sync::{AtomicU64, Ordering};

/// A limiter in use looks for a change so often.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// An algorithm and what asks for its decisions. Calls that began with it end with it.
#[derive(Debug)]
pub(super) struct ActivePolicy<A> {
    /// With figures that its script can count with.
    pub(super) algorithm: A,
    /// One for each connection.
    batches: Box<[Arc<Batcher>]>,
    links: ConnectionPool,
    /// What the script is told of the usual call.
    pub(super) take_one: Args,
}

/// The algorithm that holds now.
#[derive(Debug)]
pub(super) struct LivePolicy<A> {
    links: ConnectionPool,
    deadline: Duration,
    /// Where the change is stored.
    key: String,
    /// The one it was made with.
    configured: A,
    present: RwLock<Arc<ActivePolicy<A>>>,
    /// When it was looked for a change, in nanoseconds; 0 is never.
    looked: AtomicU64,
    /// Changes so far, so that a look from before one does not undo it.
    changes: AtomicU64,
}

impl<A: Scripted> ActivePolicy<A> {
    fn new(links: &ConnectionPool, deadline: Duration, algorithm: A) -> Arc<Self> {
        let program = Arc::new(Program::new(&algorithm));
        let batch = |link| Batcher::new(Arc::clone(link), Arc::clone(&program), deadline);
        Arc::new(Self {
            batches: links.iter().map(batch).collect(),
            links: links.clone(),
            take_one: Args::of(&algorithm, Call::Take(1)),
            algorithm,
        })
    }

    /// Who asks about a key.
    pub(super) fn batch(&self, key: &str) -> &Arc<Batcher> {
        &self.batches[self.links.place(key, self.batches.len())]
    }
}

impl<A: Scripted> LivePolicy<A> {
    pub(super) fn new(
        links: &ConnectionPool,
        deadline: Duration,
        key: String,
        configured: A,
    ) -> Self {
        Self {
            links: links.clone(),
            deadline,
            key,
            present: RwLock::new(ActivePolicy::new(links, deadline, configured.clone())),
            configured,
            looked: AtomicU64::new(0),
            changes: AtomicU64::new(0),
        }
    }

    pub(super) const fn deadline(&self) -> Duration {
        self.deadline
    }

    pub(super) fn present(&self) -> Arc<ActivePolicy<A>> {
        let present = self.present.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&present)
    }

    /// Whether it is time to look, which then is the caller's to do.
    pub(super) fn is_due(&self, now: Tick) -> bool {
        let looked = self.looked.load(Ordering::Relaxed);
        let due = looked == 0 || now.since(Tick::from_nanos(looked)) >= REFRESH_INTERVAL;
        due && self
            .looked
            .compare_exchange(
                looked,
                now.as_nanos().max(1),
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Takes over what is stored, if it can be asked.
    pub(super) async fn look(&self, denied: Option<&DenyCache>) {
        let before = self.changes.load(Ordering::Acquire);
        let mut command = redis::cmd("GET");
        command.arg(&self.key);
        let asked = tokio::time::timeout(self.deadline, self.links.first().send(&command));
        let Ok(Ok(value)) = asked.await else {
            return;
        };
        let stored = match value {
            Value::BulkString(text) => String::from_utf8(text).unwrap_or_default(),
            _ => String::new(),
        };
        let configured = self.configured.quota();
        let quota = stored
            .split_once(" -> ")
            .filter(|(from, _)| *from == configured.to_string())
            .and_then(|(_, to)| to.parse().ok())
            .unwrap_or(configured);
        if self.changes.load(Ordering::Acquire) == before {
            // Another version of this program may store what this one cannot count with.
            if let Ok(algorithm) = self.with_quota(quota) {
                self.change(algorithm, denied);
            }
        }
    }

    /// Changes the quota of the fleet.
    pub(super) async fn set_quota(
        &self,
        quota: Quota,
        denied: Option<&DenyCache>,
    ) -> Result<(), StoreError> {
        let algorithm = self.with_quota(quota)?;
        Handle::try_current()
            .map_err(|_| StoreError::new("Redis: asked outside of a tokio runtime", false))?;
        let configured = self.configured.quota();
        let command = if quota == configured {
            let mut command = redis::cmd("DEL");
            command.arg(&self.key);
            command
        } else {
            let mut command = redis::cmd("SET");
            command
                .arg(&self.key)
                .arg(format!("{configured} -> {quota}"));
            command
        };
        let asked = tokio::time::timeout(self.deadline, self.links.first().send(&command));
        match asked.await {
            Ok(Ok(_)) => {
                self.changes.fetch_add(1, Ordering::AcqRel);
                self.change(algorithm, denied);
                Ok(())
            }
            Ok(Err(failure)) => Err(failure.error),
            Err(_) => Err(batch::late(self.deadline)),
        }
    }

    fn with_quota(&self, quota: Quota) -> Result<A, StoreError> {
        if quota == self.configured.quota() {
            return Ok(self.configured.clone());
        }
        let changed = self.configured.with_quota(quota);
        changed
            .and_then(A::prepared)
            .map_err(|error| StoreError::new(error.to_string(), false))
    }

    fn change(&self, algorithm: A, denied: Option<&DenyCache>) {
        if algorithm.quota() == self.present().algorithm.quota() {
            return;
        }
        let tuned = ActivePolicy::new(&self.links, self.deadline, algorithm);
        *self.present.write().unwrap_or_else(PoisonError::into_inner) = tuned;
        if let Some(denied) = denied {
            denied.forget_all();
        }
    }
}
