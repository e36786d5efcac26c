//! A quota that changes while the fleet runs.
//!
//! A change is stored at a key of the policy: the quota that all limiters were configured with, and
//! the one that replaces it. Every limiter in use reads the key once per `REFRESH_INTERVAL`, beside
//! its decisions, which do not wait for it. A limiter that was configured with another quota, as
//! after a rollout, ignores the change.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::runtime::Handle;

use super::{
    batch::Batcher,
    call::Call,
    deny_cache::DenyCache,
    pool::ConnectionPool,
    script::{Args, Program, Scripted},
};
use crate::clock::Tick;
use crate::error::StoreError;
use crate::quota::Quota;
use crate::sync::{AtomicU64, Ordering};

/// Less than the second that is promised, so that there is time for the reply.
const REFRESH_INTERVAL: Duration = Duration::from_millis(800);

/// An algorithm and what executes its calls. A call ends with the policy that it began with.
#[derive(Debug)]
pub(super) struct ActivePolicy<A> {
    /// With parameters that its script can represent.
    pub(super) algorithm: A,
    /// One per connection.
    batchers: Box<[Arc<Batcher>]>,
    pool: ConnectionPool,
    /// The arguments of the most frequent call.
    take_one_args: Args,
}

/// The policy that is active now.
#[derive(Debug)]
pub(super) struct LivePolicy<A> {
    pool: ConnectionPool,
    deadline: Duration,
    /// The key at which a change is stored.
    key: String,
    configured: A,
    active: RwLock<Arc<ActivePolicy<A>>>,
    /// When the key was last read, in nanoseconds; 0 means never.
    refreshed_at: AtomicU64,
    /// Counts changes made here: a value read before one does not undo it.
    changes: AtomicU64,
}

impl<A: Scripted> ActivePolicy<A> {
    fn new(pool: &ConnectionPool, deadline: Duration, algorithm: A) -> Arc<Self> {
        let program = Arc::new(Program::new(&algorithm));
        let batcher =
            |connection| Batcher::new(Arc::clone(connection), Arc::clone(&program), deadline);
        Arc::new(Self {
            batchers: pool.iter().map(batcher).collect(),
            pool: pool.clone(),
            take_one_args: Args::for_call(&algorithm, Call::Take(1)),
            algorithm,
        })
    }

    /// The batcher for a key.
    pub(super) fn batcher(&self, key: &str) -> &Arc<Batcher> {
        &self.batchers[self.pool.index_for(key, self.batchers.len())]
    }

    pub(super) fn args(&self, call: Call) -> Args {
        match call {
            Call::Take(1) => self.take_one_args.clone(),
            call => Args::for_call(&self.algorithm, call),
        }
    }
}

impl<A: Scripted> LivePolicy<A> {
    pub(super) fn new(
        pool: &ConnectionPool,
        deadline: Duration,
        key: String,
        configured: A,
    ) -> Self {
        Self {
            pool: pool.clone(),
            deadline,
            key,
            active: RwLock::new(ActivePolicy::new(pool, deadline, configured.clone())),
            configured,
            refreshed_at: AtomicU64::new(0),
            changes: AtomicU64::new(0),
        }
    }

    pub(super) fn active(&self) -> Arc<ActivePolicy<A>> {
        let active = self.active.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&active)
    }

    /// Whether a refresh is due. If so, the caller has to run it. Never due while the server does
    /// not reply.
    pub(super) fn is_refresh_due(&self, now: Tick) -> bool {
        let last = self.refreshed_at.load(Ordering::Relaxed);
        let is_due = last == 0 || now.since(Tick::from_nanos(last)) >= REFRESH_INTERVAL;
        is_due
            && !self.is_unavailable()
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

    /// Whether the breaker of the key's server is open.
    fn is_unavailable(&self) -> bool {
        let connection = self.pool.first();
        let server = connection.server_of(&self.key);
        connection.breakers().is_open(&server)
    }

    /// Adopts the stored quota, if the server replies.
    pub(super) async fn refresh(&self, deny_cache: Option<&DenyCache>) {
        let before = self.changes.load(Ordering::Acquire);
        let mut command = redis::cmd("GET");
        command.arg(&self.key);
        let Ok(value) = self.send(&command).await else {
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
            // Another version of the program may store a quota that this one cannot represent.
            if let Ok(algorithm) = self.with_quota(quota) {
                self.replace_algorithm(algorithm, deny_cache);
            }
        }
    }

    /// Changes the quota of the fleet.
    pub(super) async fn set_quota(
        &self,
        quota: Quota,
        deny_cache: Option<&DenyCache>,
    ) -> Result<(), StoreError> {
        let algorithm = self.with_quota(quota)?;
        Handle::try_current()
            .map_err(|_| StoreError::new("Redis: called outside of a tokio runtime", false))?;
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
        self.send(&command).await?;
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.replace_algorithm(algorithm, deny_cache);
        Ok(())
    }

    async fn send(&self, command: &Cmd) -> Result<Value, StoreError> {
        let connection = self.pool.first();
        match tokio::time::timeout(self.deadline, connection.send(command)).await {
            Ok(reply) => reply.map_err(|error| error.error),
            Err(_) => Err(connection.deadline_exceeded(self.deadline)),
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

    fn replace_algorithm(&self, algorithm: A, deny_cache: Option<&DenyCache>) {
        if algorithm.quota() == self.active().algorithm.quota() {
            return;
        }
        let policy = ActivePolicy::new(&self.pool, self.deadline, algorithm);
        *self.active.write().unwrap_or_else(PoisonError::into_inner) = policy;
        if let Some(deny_cache) = deny_cache {
            deny_cache.invalidate_all();
        }
    }
}
