//! A limiter of a fleet.

use std::{fmt, sync::Arc, time::Duration};

use super::machine::Budget;
use super::node::{CALL_DEADLINE, Node, Owner};
use crate::algorithm::{Algorithm, IntoAlgorithm, share_of};
use crate::backend::{Backend, IntoBackend, Op, Stats};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::decision::Decision;
use crate::error::{ConfigError, StoreError, expect_valid};
use crate::key::Key;
use crate::quota::Quota;
use crate::store::{
    any::AnyDecision,
    cas::CasStore,
    remote::{RemoteKey, check_name},
};
use crate::sync::{Ordering, lock};

/// A limit of a fleet that every machine decides in memory: [`Synced`](super::Synced) or
/// [`Leased`](super::Leased). If it is `AHEAD`, machines are granted what refills in the coming interval as well.
///
/// Clones are the same limiter.
///
/// # Cancel safety
/// Nothing is taken for a request whose decision is dropped while it is pending.
pub struct FleetLimiter<S: CasStore, A: Algorithm, const AHEAD: bool> {
    owner: Arc<Owner<S, A>>,
}

/// Settings of a [`Synced`](super::Synced) or [`Leased`](super::Leased) limiter.
#[derive(Clone, Debug)]
#[must_use = "settings have no effect before `build`"]
pub struct FleetBuilder<S, const AHEAD: bool> {
    store: S,
    prefix: String,
    interval: Duration,
    deadline: Option<Duration>,
    life: Option<Duration>,
    capacity: usize,
}

/// Counts of what a limiter of a fleet has exchanged since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FleetCounts {
    /// Keys that were exchanged with the store.
    pub exchanged: u64,
    /// How often a batch of keys has failed. It is tried again within 50 ms at first, and within a second later.
    pub failed: u64,
    /// Writes that found another version, because another machine had changed the key.
    pub conflicts: u64,
    /// Keys that this machine knows.
    pub keys: usize,
}

impl<S: CasStore, A: Algorithm, const AHEAD: bool> FleetLimiter<S, A, AHEAD> {
    #[inline]
    fn node(&self) -> &Arc<Node<S, A>> {
        &self.owner.0
    }

    /// A limit with default settings. Limits of one name in one store are one limit.
    ///
    /// # Panics
    /// If the name is not 1 to 64 letters, digits and any of `. _ -`, or if the algorithm is refused;
    /// [`FleetBuilder::build`] returns an error instead.
    #[track_caller]
    pub fn new<I>(store: S, name: &str, algorithm: I) -> Self
    where
        I: IntoAlgorithm<Algorithm = A>,
    {
        expect_valid(FleetBuilder::new(store).build(name, algorithm))
    }

    /// Waits until the store has replied once.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn ready(&self) -> Result<(), StoreError> {
        let Node { shared, .. } = &**self.node();
        let key = &self.node().sequence_key;
        shared.call(key, shared.store.load(key)).await.map(drop)
    }

    /// Reports what was used since the last exchange and gives back all units, and waits until the store
    /// has it.
    ///
    /// Call it before the program ends. A limiter that is dropped does it in a task, which does
    /// not delay the end of the program. The limiter can be used on afterwards.
    ///
    /// # Errors
    /// If the store did not get it: then it is tried again.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.node().flush().await
    }

    /// The algorithm with this machine's share of each quota, for a limit in process on each of `machines`
    /// machines while the store is unavailable (see [`Fallback`](crate::store::Fallback)).
    ///
    /// # Errors
    /// If a share would be a unit in more than a quota can say.
    pub fn share_of(&self, machines: u64) -> Result<A, ConfigError> {
        share_of(&self.node().algorithm, machines)
    }

    /// How long the oldest use has waited that the store may not know of. Above two intervals, the
    /// store does not keep up or is not reached.
    pub fn lag(&self) -> Duration {
        self.node().lag()
    }

    /// What it has exchanged since it was made.
    pub fn counts(&self) -> FleetCounts {
        let (node, progress) = (self.node(), lock(&self.node().progress));
        FleetCounts {
            exchanged: progress.exchanged,
            failed: progress.failed,
            conflicts: node.shared.conflicts.load(Ordering::Relaxed),
            keys: node.keys.len(),
        }
    }

    /// The error of the last exchange, if it failed.
    pub fn last_error(&self) -> Option<StoreError> {
        lock(&self.node().progress).last_error.clone()
    }

    fn peek<K: Key + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        let keys = &self.node().keys;
        let hash = keys.hash(key);
        keys.shard(hash).peek(hash, MonotonicClock.now(), cost)
    }

    fn change<K>(&self, key: &K, op: Op) -> Result<Decision, StoreError>
    where
        K: Key + RemoteKey + ?Sized,
    {
        let node = self.node();
        node.ensure_running()?;
        let (hash, now) = (node.keys.hash(key), MonotonicClock.now());
        let change = |budget: &mut Budget| match op {
            Op::Refund(cost, receipt) | Op::Cancel(cost, receipt) | Op::Forgive(cost, receipt) => {
                let taken_at = Tick::from_nanos(receipt.moment()).min(now);
                budget.refund(now, cost, taken_at);
            }
            Op::Charge(cost) => budget.charge(now, cost),
            Op::Reset => budget.reset(),
            Op::Take(_) | Op::Reserve { .. } | Op::Peek(_) => {}
        };
        let name = || node.name_of(key);
        let decision = node.keys.change(hash, name, now, change)?;
        if op == Op::Reset {
            node.exchange_now(hash);
        }
        Ok(decision)
    }
}

impl<S: CasStore, const AHEAD: bool> FleetBuilder<S, AHEAD> {
    /// The default settings.
    pub fn new(store: S) -> Self {
        Self {
            store,
            prefix: "throttle".to_owned(),
            interval: Duration::from_millis(100),
            deadline: None,
            life: None,
            capacity: 100_000,
        }
    }

    /// Sets how often a key in use is exchanged with the store, by default every 100 ms. Intervals are
    /// up to a tenth shorter or longer, so that machines do not keep in step.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Quota, TokenBucket, store::{cas::MemoryStore, fleet::SyncedBuilder}};
    ///
    /// let limit = SyncedBuilder::new(MemoryStore::new())
    ///     .interval(Duration::from_secs(1))
    ///     .build("api", TokenBucket::new(Quota::per_minute(6_000)))?;
    /// # let _ = limit;
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Sets how long a request waits for an exchange of its key at most, by default two intervals and the
    /// time that a call of the store may take.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets for how long a grant is good: by default ten intervals, and one second at least. A machine that crashes
    /// costs the fleet what it held for up to twice as long.
    pub fn life(mut self, life: Duration) -> Self {
        self.life = Some(life);
        self
    }

    /// Sets how many keys the table of a machine holds, by default 100,000.
    pub fn capacity(mut self, keys: usize) -> Self {
        self.capacity = keys;
        self
    }

    /// Sets the start of the names of all keys, by default `throttle`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Builds a limit. Limits of one name and prefix in one store are one limit.
    ///
    /// # Errors
    /// If the name or the prefix is not 1 to 64 letters, digits and any of `. _ -`, if a setting is out
    /// of range, or if the algorithm is refused.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Quota, TokenBucket, store::{cas::MemoryStore, fleet::SyncedBuilder}};
    ///
    /// let builder = SyncedBuilder::new(MemoryStore::new()).interval(Duration::ZERO);
    /// let error = builder.build("api", TokenBucket::new(Quota::per_second(10))).unwrap_err();
    /// assert_eq!(error.to_string(), "interval: 0ns is not allowed; give 1 ms to 1 hour");
    /// ```
    pub fn build<I: IntoAlgorithm<Algorithm: Algorithm>>(
        self,
        name: &str,
        algorithm: I,
    ) -> Result<FleetLimiter<S, I::Algorithm, AHEAD>, ConfigError> {
        check_name("prefix", &self.prefix)?;
        check_name("name", name)?;
        let interval = self.interval;
        let life = interval.saturating_mul(10).max(Duration::from_secs(1));
        let life = self.life.unwrap_or(life);
        let deadline = interval.saturating_mul(2).saturating_add(CALL_DEADLINE);
        let deadline = self.deadline.unwrap_or(deadline);
        let (milli, day) = (Duration::from_millis(1), Duration::from_secs(86_400));
        let lives = interval.saturating_mul(2)..=day;
        for (field, value, range, allowed) in [
            ("interval", interval, milli..=day / 24, "1 ms to 1 hour"),
            ("life", life, lives, "two intervals to 1 day"),
            ("deadline", deadline, milli..=day, "1 ms to 1 day"),
        ] {
            if !range.contains(&value) {
                let value = format!("{value:?}");
                return Err(ConfigError::out_of_range(field, value, allowed));
            }
        }
        if self.capacity == 0 {
            return Err(ConfigError::out_of_range("capacity", 0, "1 or more"));
        }
        let node = Node::new(
            self.store,
            [&self.prefix, name],
            algorithm.into_algorithm(),
            [interval, life, deadline],
            (self.capacity, AHEAD),
        )?;
        let owner = Arc::new(Owner(Arc::new(node)));
        Ok(FleetLimiter { owner })
    }
}

impl<K, S, A, const AHEAD: bool> Backend<K> for FleetLimiter<S, A, AHEAD>
where
    K: Key + RemoteKey + ?Sized,
    S: CasStore,
    A: Algorithm,
{
    type Future = AnyDecision;

    fn apply(&self, key: &K, op: Op) -> AnyDecision {
        match op {
            Op::Take(cost) | Op::Reserve { cost, .. } => self.decide(key, cost),
            Op::Peek(cost) => AnyDecision::ready(Ok(self.peek(key, cost))),
            _ => AnyDecision::ready(self.change(key, op)),
        }
    }

    #[inline]
    fn decide(&self, key: &K, cost: u64) -> AnyDecision {
        let node = self.node();
        let hash = node.keys.hash(key);
        let now = MonotonicClock.now();
        let name = || node.name_of(key);
        match node.decide(hash, name, (now, cost), false) {
            Ok(Ok(decision)) => AnyDecision::ready(Ok(decision)),
            Ok(Err(exchanged)) => {
                let node = Arc::clone(node);
                AnyDecision::pending(node.wait((hash, name()), exchanged, (now, cost)))
            }
            Err(error) => AnyDecision::ready(Err(error)),
        }
    }

    fn current_decision(&self, key: &K, cost: u64) -> Option<Decision> {
        Some(self.peek(key, cost))
    }

    fn stats(&self) -> Stats {
        self.node().keys.stats()
    }

    fn quotas(&self) -> Vec<Quota> {
        self.node().algorithm.quotas()
    }

    fn limits(&self) -> usize {
        self.node().algorithm.capabilities().limits
    }
}

impl<S: CasStore, A: Algorithm, const AHEAD: bool> IntoBackend for FleetLimiter<S, A, AHEAD> {
    type Backend = Self;

    fn into_backend(self) -> Self {
        self
    }

    /// A machine gives out what it holds, and knows no turns.
    fn queues(_: &Self) -> bool {
        false
    }
}

/// Manual impl: the contents are shared.
impl<S: CasStore, A: Algorithm, const AHEAD: bool> Clone for FleetLimiter<S, A, AHEAD> {
    fn clone(&self) -> Self {
        let owner = Arc::clone(&self.owner);
        Self { owner }
    }
}

/// Manual impl: the keys are not logged.
impl<S: CasStore, A: Algorithm, const AHEAD: bool> fmt::Debug for FleetLimiter<S, A, AHEAD> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = self.node();
        f.debug_struct(if AHEAD { "Synced" } else { "Leased" })
            .field("name_prefix", &node.name_prefix)
            .field("algorithm", &node.algorithm)
            .field("store", &node.shared.store)
            .finish_non_exhaustive()
    }
}
