//! A limiter of a fleet.

use std::{fmt, sync::Arc, time::Duration};

use super::machine::Budget;
use super::node::{Node, Owner, Times};
use crate::algorithm::{Algorithm, IntoAlgorithm};
use crate::backend::{Backend, IntoBackend, Op, Stats};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::decision::Decision;
use crate::error::{ConfigError, StoreError, expect_valid};
use crate::key::Key;
use crate::quota::Quota;
use crate::store::{
    any::AnyDecision,
    cas::{CasStore, expect_unused},
    remote::{RemoteKey, check_name},
};
use crate::sync::{Ordering, lock};

const A_DAY: (Duration, &str) = (Duration::from_secs(86_400), "1 ms to 1 day");

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

impl<S: CasStore, A: Algorithm, const AHEAD: bool> FleetLimiter<S, A, AHEAD> {
    #[inline]
    fn node(&self) -> &Arc<Node<S, A>> {
        &self.owner.0
    }

    /// A limit. Limits of one name in one store are one limit.
    ///
    /// # Errors
    /// If the name is not 1 to 64 letters, digits and any of `. _ -`, or if the algorithm is refused.
    pub fn new<I>(store: S, name: &str, algorithm: I) -> Result<Self, ConfigError>
    where
        I: IntoAlgorithm<Algorithm = A>,
    {
        check_name("name", name)?;
        let node = Node::new(store, name, algorithm.into_algorithm(), AHEAD)?;
        let owner = Arc::new(Owner(Arc::new(node)));
        Ok(Self { owner })
    }

    /// Sets how often a key in use is exchanged with the store, by default every 100 ms. Intervals are
    /// up to a tenth shorter or longer, so that machines do not keep in step.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Quota, TokenBucket, store::{cas::MemoryStore, fleet::Synced}};
    ///
    /// let limit = Synced::new(MemoryStore::new(), "api", TokenBucket::new(Quota::per_minute(6_000)))?
    ///     .interval(Duration::from_secs(1));
    /// # let _ = limit;
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    ///
    /// # Panics
    /// If it is not 1 ms to 1 hour, or if the limiter was used or cloned before.
    #[must_use]
    #[track_caller]
    pub fn interval(self, interval: Duration) -> Self {
        let most = (Duration::from_secs(3_600), "1 ms to 1 hour");
        self.set("interval", interval, most, |times| {
            times.interval = interval;
        })
    }

    /// Sets how long a request waits for an exchange of its key at most, by default two intervals and the
    /// time that a call of the store may take.
    ///
    /// # Panics
    /// If it is not 1 ms to 1 day, or if the limiter was used or cloned before.
    #[must_use]
    #[track_caller]
    pub fn deadline(self, deadline: Duration) -> Self {
        self.set("deadline", deadline, A_DAY, |times| {
            times.deadline = Some(deadline);
        })
    }

    /// Sets for how long a grant is good, at least two intervals: by default ten of them, and one second at least. A
    /// machine that crashes costs the fleet what it held for up to twice as long.
    ///
    /// # Panics
    /// If it is not 1 ms to 1 day, or if the limiter was used or cloned before.
    #[must_use]
    #[track_caller]
    pub fn life(self, life: Duration) -> Self {
        self.set("life", life, A_DAY, |times| times.life = Some(life))
    }

    /// Sets how many keys the table of a machine holds, by default 100,000.
    ///
    /// # Panics
    /// If it is 0, or if the limiter was used or cloned before.
    #[must_use]
    #[track_caller]
    pub fn capacity(mut self, keys: usize) -> Self {
        assert!(keys > 0, "capacity: 0 is not allowed; give 1 or more");
        let node = expect_unused(&mut expect_unused(&mut self.owner).0);
        node.keys.capacity = keys;
        self
    }

    #[track_caller]
    fn set(
        mut self,
        field: &'static str,
        value: Duration,
        (most, allowed): (Duration, &'static str),
        change: impl FnOnce(&mut Times),
    ) -> Self {
        if !(Duration::from_millis(1)..=most).contains(&value) {
            let error = ConfigError::out_of_range(field, format!("{value:?}"), allowed);
            expect_valid(Err::<(), _>(error));
        }
        expect_unused(&mut expect_unused(&mut self.owner).0).set(change);
        self
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

    /// How long the oldest use has waited that the store may not know of. Above two intervals, the
    /// store does not keep up or is not reached.
    pub fn lag(&self) -> Duration {
        self.node().lag()
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
        let node = self.node();
        Stats {
            store_calls: lock(&node.progress).exchanged,
            conflicts: node.shared.conflicts.load(Ordering::Relaxed),
            ..node.keys.stats()
        }
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
