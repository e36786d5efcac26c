//! A limiter of a fleet.

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use super::machine::Budget;
use super::node::{Node, Owner};
use super::settings::Settings;
use crate::algorithm::{Algorithm, IntoAlgorithm, share_of};
use crate::backend::{Backend, Fullness, IntoBackend, Losses, Op};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::decision::Decision;
use crate::error::{ConfigError, StoreError, expect_valid};
use crate::key::Key;
use crate::quota::Quota;
use crate::store::{
    any::AnyDecision,
    cas::CasStore,
    remote::{BreakerCounts, RemoteKey, StoreLimiter, check_name},
};
use crate::sync::Ordering;

const DEFAULT_INTERVAL: Duration = Duration::from_millis(100);
const DEFAULT_CAPACITY: usize = 100_000;

/// What a machine is granted.
pub trait Mode: Clone + fmt::Debug + Send + Sync + 'static {
    /// Whether the refill of the coming interval is granted as well.
    const AHEAD: bool;
    /// The name in the errors and in `Debug`.
    const NAME: &'static str;
}

/// The mode of [`Synced`](super::Synced).
#[derive(Clone, Debug)]
pub enum Ahead {}

/// The mode of [`Leased`](super::Leased).
#[derive(Clone, Debug)]
pub enum Granted {}

impl Mode for Ahead {
    const AHEAD: bool = true;
    const NAME: &'static str = "Synced";
}

impl Mode for Granted {
    const AHEAD: bool = false;
    const NAME: &'static str = "Leased";
}

/// A limit of a fleet that every machine decides in memory: [`Synced`](super::Synced) or
/// [`Leased`](super::Leased).
///
/// Clones are the same limiter.
///
/// # Cancel safety
/// Nothing is taken for a request whose decision is dropped while it is pending.
pub struct FleetLimiter<S: CasStore, A: Algorithm, M> {
    owner: Arc<Owner<S, A>>,
    mode: PhantomData<M>,
}

/// Settings of a [`Synced`](super::Synced) or [`Leased`](super::Leased) limiter.
#[derive(Clone, Debug)]
#[must_use = "settings have no effect before `build`"]
pub struct FleetBuilder<S, M> {
    store: S,
    prefix: String,
    pub(super) settings: Settings,
    mode: PhantomData<M>,
}

/// Counts of what a limiter of a fleet has exchanged since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FleetCounts {
    /// Keys that were exchanged with the store.
    pub exchanged: u64,
    /// Batches of keys that failed. They are tried again after a time that doubles from 50 ms to a second.
    pub failed: u64,
    /// Writes that found another version, because another machine had changed the key.
    pub conflicts: u64,
    /// Keys that this machine knows.
    pub keys: usize,
    /// How often a cost was not reported, because the table was full.
    pub lost: u64,
}

impl<S: CasStore, A: Algorithm, M: Mode> FleetLimiter<S, A, M> {
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

    /// Waits until the store was reached once.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn ready(&self) -> Result<(), StoreError> {
        if self.node().has_exchanged() {
            return Ok(());
        }
        self.node().flush().await
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
        share_of(&self.node().algorithm(), machines)
    }

    /// How long the oldest use has waited that the store may not know of. Above two intervals, the
    /// store does not keep up or is not reached.
    pub fn lag(&self) -> Duration {
        self.node().lag()
    }

    /// What it has exchanged since it was made.
    pub fn counts(&self) -> FleetCounts {
        let node = self.node();
        FleetCounts {
            exchanged: node.exchanged.load(Ordering::Relaxed),
            failed: node.failed.load(Ordering::Relaxed),
            conflicts: node.exchanger.shared.conflicts.load(Ordering::Relaxed),
            keys: node.keys.len(),
            lost: node.keys.losses().lost_charges,
        }
    }

    /// The error of the last exchange, if it failed.
    pub fn last_error(&self) -> Option<StoreError> {
        self.node().last_error()
    }

    /// Whether its circuit breaker is open, and how often it opened.
    pub fn breaker(&self) -> BreakerCounts {
        self.node().exchanger.shared.breakers.counts()
    }

    fn change<K>(&self, key: &K, now: Tick, op: Op) -> Result<Decision, StoreError>
    where
        K: Key + RemoteKey + ?Sized,
    {
        let node = self.node();
        node.ensure_running()?;
        let hash = node.keys.hash(key);
        let change = |budget: &mut Budget| match op {
            Op::Refund(cost, receipt) | Op::Cancel(cost, receipt) | Op::Forgive(cost, receipt) => {
                let taken_at = Tick::from_nanos(receipt.moment()).min(now);
                budget.refund(now, cost, taken_at);
            }
            Op::Charge(cost) => budget.charge(now, cost),
            Op::Reset => budget.reset(),
            Op::Take(_) | Op::Reserve { .. } | Op::Peek(_) | Op::Ban(_) => {}
        };
        let name = || Node::<S, A>::name_of(key);
        let decision = node.keys.change(hash, name, now, change);
        let decision = decision.ok_or_else(Node::<S, A>::is_full)?;
        if op == Op::Reset {
            node.exchange_now(hash);
        }
        Ok(decision)
    }
}

impl<S: CasStore, M: Mode> FleetBuilder<S, M> {
    /// The default settings.
    pub fn new(store: S) -> Self {
        Self {
            store,
            prefix: "throttle".to_owned(),
            settings: Settings {
                interval: DEFAULT_INTERVAL,
                deadline: None,
                life: None,
                capacity: DEFAULT_CAPACITY,
            },
            mode: PhantomData,
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
        self.settings.interval = interval;
        self
    }

    /// Sets how long a request waits for an exchange of its key at most, by default two intervals and the
    /// time that a call of the store may take.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.settings.deadline = Some(deadline);
        self
    }

    /// Sets for how long a grant is good: by default ten intervals, and one second at least. A machine that crashes
    /// costs the fleet what it held for up to twice as long.
    pub fn life(mut self, life: Duration) -> Self {
        self.settings.life = Some(life);
        self
    }

    /// Sets how many keys the table of a machine holds, by default 100,000.
    pub fn capacity(mut self, keys: usize) -> Self {
        self.settings.capacity = keys;
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
    ) -> Result<FleetLimiter<S, I::Algorithm, M>, ConfigError> {
        check_name("prefix", &self.prefix)?;
        check_name("name", name)?;
        self.settings.check()?;
        let names = [&*self.prefix, name];
        let node = Node::new(
            self.store,
            names,
            &algorithm.into_algorithm(),
            (self.settings, M::AHEAD),
        )?;
        Ok(FleetLimiter {
            owner: Arc::new(Owner(Arc::new(node))),
            mode: PhantomData,
        })
    }
}

impl<K, S, A, M> Backend<K> for FleetLimiter<S, A, M>
where
    K: Key + RemoteKey + ?Sized,
    S: CasStore,
    A: Algorithm,
    M: Mode,
{
    type Future = AnyDecision;

    fn apply(&self, key: &K, op: Op) -> AnyDecision {
        let node = self.node();
        let now = MonotonicClock.now();
        match op {
            Op::Take(cost) | Op::Reserve { cost, .. } => self.decide(key, cost),
            Op::Peek(cost) => {
                AnyDecision::ready(Ok(node.keys.peek(node.keys.hash(key), now, cost)))
            }
            _ => AnyDecision::ready(self.change(key, now, op)),
        }
    }

    #[inline]
    fn decide(&self, key: &K, cost: u64) -> AnyDecision {
        let node = self.node();
        let hash = node.keys.hash(key);
        let now = MonotonicClock.now();
        let name = || Node::<S, A>::name_of(key);
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
        let keys = &self.node().keys;
        Some(keys.peek(keys.hash(key), MonotonicClock.now(), cost))
    }

    fn fullness(&self) -> Option<Fullness> {
        Some(self.node().keys.fullness(MonotonicClock.now()))
    }

    fn losses(&self) -> Losses {
        self.node().keys.losses()
    }

    fn quotas(&self) -> Vec<Quota> {
        self.node().algorithm().quotas()
    }

    fn limits(&self) -> usize {
        self.node().algorithm().capabilities().limits
    }
}

impl<S: CasStore, A: Algorithm, M: Mode> StoreLimiter for FleetLimiter<S, A, M> {
    async fn ready(&self) -> Result<(), StoreError> {
        Self::ready(self).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        Self::close(self).await
    }

    fn lag(&self) -> Duration {
        Self::lag(self)
    }

    fn last_error(&self) -> Option<StoreError> {
        Self::last_error(self)
    }

    fn breaker(&self) -> BreakerCounts {
        Self::breaker(self)
    }
}

impl<S: CasStore, A: Algorithm, M: Mode> IntoBackend for FleetLimiter<S, A, M> {
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
impl<S: CasStore, A: Algorithm, M> Clone for FleetLimiter<S, A, M> {
    fn clone(&self) -> Self {
        Self {
            owner: Arc::clone(&self.owner),
            mode: PhantomData,
        }
    }
}

/// Manual impl: the keys are not logged.
impl<S: CasStore, A: Algorithm, M: Mode> fmt::Debug for FleetLimiter<S, A, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = self.node();
        f.debug_struct(M::NAME)
            .field("name_prefix", &node.name_prefix)
            .field("algorithm", &node.algorithm())
            .field("settings", &node.settings)
            .field("store", &node.exchanger.shared.store)
            .finish_non_exhaustive()
    }
}
