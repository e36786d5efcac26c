//! A table in this process that stores the states of many keys. Its size is fixed.

mod backend;
mod hash;
mod inner;
mod keyed;
mod line;
mod overflow;
mod saved;
mod settings;
mod table;

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::hash::Seeded;
use self::inner::{DEFAULT_CAPACITY, InUse, LocalInner};
use self::line::tag;
pub use self::overflow::Overflow;
use self::table::Table;
use crate::acquire::{OneKey, StepResult, acquire};
use crate::algorithm::{Algorithm, IntoAlgorithm};
use crate::backend::Stats;
use crate::clock::{Clock, MonotonicClock, Tick, Timer};
use crate::decision::{Decision, Verdict};
use crate::error::{ConfigError, expect_valid};
use crate::quota::Quota;

/// A rate limiter per key, in this process.
///
/// The states are stored in a table of a fixed size. The table needs no background task: a new key takes an empty slot or one whose state has expired. The [`Overflow`]
/// policy applies only if none of the slots that the key may use is free. If a table holds as many
/// live keys as its [`capacity`](Self::capacity), at most one in ten million of them has no slot.
///
/// Clones share the table. A key can be any type that implements [`Hash`]. Keys are hashed with a
/// secret seed and are not stored.
///
/// ```
/// use tower_throttle::{Local, Quota, TokenBucket};
///
/// let limiter = Local::new(TokenBucket::new(Quota::per_minute(2)));
/// assert!(limiter.check("alice", 1).is_admitted());
/// assert!(limiter.check("alice", 1).is_admitted());
/// assert!(limiter.check("alice", 1).is_denied());
/// assert!(limiter.check("bob", 1).is_admitted());
/// ```
///
/// # Scalability
/// The table is divided into shards, one per 512 cache lines and at most 1,024, each behind a lock that is held
/// for one decision. Threads contend if their keys share a shard. A denial takes the lock as well, but if threads have
/// waited for each other, the last denial of a shard is repeated without it until its key is admitted again.
///
/// # Algorithms of your own
/// An algorithm of your own runs on a copy of the state while a lock of the key is held, so a panic in it
/// changes no key. It must not use the table that runs it, or it waits for that lock for ever.
///
/// # Hash collisions
/// The table identifies a key by its hash: 34 bits are stored in a slot, and the high bits choose
/// the cache lines that may hold it. Two keys that agree in these bits share one limit. Among ten million
/// keys the probability that any two do is less than 1 in 1,000, and among a million less than 1 in 10,000.
/// An attacker who does not know the seed cannot search for such a pair.
///
/// # Memory
/// A key takes 29 bytes if its state has at most 16, as those of buckets and fixed windows, and 40 bytes if its
/// state has 24, as a sliding window: 0.45 times the size of three states and 16 bytes. All of this memory is
/// allocated once: when a layer is built with the table, or at the first use.
///
/// Some states allocate more: a log 16 bytes per admission in the window, and up to twice that while it grows; a grid 8
/// bytes per cell.
pub struct Local<A: Algorithm, C = MonotonicClock> {
    shared: Arc<LocalInner<A, C>>,
    /// What decides in place of the algorithm that the table has.
    own: Option<Arc<A>>,
}

impl<A: Algorithm> Local<A> {
    /// Creates a table for 100,000 keys, on the system's monotonic clock, from an algorithm or a
    /// tuple of algorithms.
    ///
    /// # Panics
    /// If a setting of the algorithm is invalid or has no effect.
    #[track_caller]
    pub fn new(algorithm: impl IntoAlgorithm<Algorithm = A>) -> Self {
        let algorithm = algorithm.into_algorithm();
        expect_valid(algorithm.validate());
        Self::of_size(algorithm, DEFAULT_CAPACITY)
    }
}

impl<A: Algorithm> Local<A> {
    fn of_size(algorithm: A, keys: usize) -> Self {
        LocalInner::new((algorithm, (keys, Overflow::default()), MonotonicClock)).into()
    }
}

impl<A: Algorithm, C: Clock> Local<A, C> {
    /// Decides on one request of `cost`. Takes either the whole cost or nothing. A cost of 0 takes
    /// nothing and is admitted.
    #[inline]
    pub fn check<K: Hash + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        self.decide_then(key, cost, |_, decision| decision)
    }

    /// Returns the decision that [`check`](Self::check) would return, and takes nothing. A key
    /// without a slot is treated as unused.
    pub fn peek<K: Hash + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        self.entry(key).peek(cost)
    }

    /// Takes `cost` and books a turn if the wait is at most `max_wait`, and denies it
    /// otherwise. The decision contains the time to wait; see [`algorithm::reserve`](crate::algorithm::reserve).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{LeakyBucket, Local, Quota, Verdict};
    ///
    /// let limiter = Local::new(LeakyBucket::new(Quota::per_hour(1)));
    /// assert!(limiter.check("alice", 1).is_admitted());
    /// let placed = limiter.reserve("alice", 1, Duration::from_secs(7_200));
    /// assert!(matches!(placed.verdict, Verdict::Wait(_)));
    /// limiter.refund("alice", 1); // gives the turn back
    /// ```
    pub fn reserve<K: Hash + ?Sized>(&self, key: &K, cost: u64, max_wait: Duration) -> Decision {
        self.entry(key).reserve(cost, max_wait)
    }

    /// Gives back `cost` that was taken just now and not used. A refund never leaves more than an
    /// unused key has.
    pub fn refund<K: Hash + ?Sized>(&self, key: &K, cost: u64) {
        self.entry(key).refund(cost);
    }

    /// Takes `cost` even if the limit does not allow it, for example because the cost is known only
    /// after the request. Returns the time until no debt is left.
    ///
    /// If the table is full and has no slot for the key, the cost is lost.
    /// [`Stats::lost_charges`] counts that.
    pub fn charge<K: Hash + ?Sized>(&self, key: &K, cost: u64) -> Duration {
        self.entry(key).charge(cost)
    }

    /// Resets the key to unused.
    pub fn reset<K: Hash + ?Sized>(&self, key: &K) {
        self.entry(key).remove();
    }

    /// The current quota. If there are several limits, it is the quota of the first.
    fn quota(&self) -> Quota {
        self.algorithm().quota()
    }

    /// Changes the quota at run time. What each key has used stays used.
    ///
    /// The states are converted by this call, shard by shard: a key is decided by the old quota until its shard
    /// is converted, and all are by the new one when this returns. Requests of a shard wait meanwhile, at most
    /// a few milliseconds.
    ///
    /// # Errors
    /// If the algorithm does not support the quota. Several limits have no single quota: use
    /// [`set_algorithm`](Self::set_algorithm).
    ///
    /// ```
    /// use tower_throttle::{FixedWindow, Local, Quota};
    ///
    /// let limiter = Local::new(FixedWindow::new(Quota::per_day(100)));
    /// let _ = limiter.check("alice", 40);
    /// limiter.set_quota(Quota::per_day(60))?;
    /// assert_eq!(limiter.peek("alice", 1).remaining(), 20);
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn set_quota(&self, quota: Quota) -> Result<(), ConfigError> {
        self.change(|algorithm| algorithm.with_quota(quota))
    }

    /// Changes the algorithm's settings at run time.
    ///
    /// # Errors
    /// If a setting is invalid or has no effect, or an [`AnyAlgorithm`](crate::algorithm::AnyAlgorithm) of this crate
    /// would become one of your own.
    pub fn set_algorithm(
        &self,
        algorithm: impl IntoAlgorithm<Algorithm = A>,
    ) -> Result<(), ConfigError> {
        let algorithm = algorithm.into_algorithm();
        self.change(|_| Ok(algorithm))
    }

    /// Decides by what `change` makes of the algorithm, of which no other change is lost.
    fn change(&self, change: impl FnOnce(&A) -> Result<A, ConfigError>) -> Result<(), ConfigError> {
        self.shared.change_algorithm(|algorithm| {
            let new = change(algorithm)?;
            new.validate()?;
            // A panic in it would leave a key half changed.
            if new.capabilities().is_user_code && !self.shared.rules.is_user_code {
                let what =
                    "an algorithm of your own in a table that was made for one of this crate";
                return Err(ConfigError::unsupported(what, "make the table with it"));
            }
            Ok(new)
        })
    }

    /// How full the table is, and what it has lost because it was full.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    fn algorithm(&self) -> Arc<A> {
        self.own.clone().unwrap_or_else(|| self.shared.algorithm())
    }

    /// Decides on a request. Returns what `done` makes of the moment and the decision. Most keys are in their home line.
    #[expect(
        clippy::inline_always,
        reason = "without it a decision is built in memory: an admitted request of a layer takes 727 instructions, not 694"
    )]
    #[inline(always)]
    fn decide_then<K: Hash + ?Sized, T>(
        &self,
        key: &K,
        cost: u64,
        done: impl Fn(Tick, Decision) -> T,
    ) -> T {
        let InUse { table, hasher } = self.shared.in_use();
        let (hash, now) = (hasher.hash_one(key), self.shared.clock.now());
        let known = table.last_denial(hash).of(hash, now).filter(|_| cost == 1);
        if self.shared.rules.is_quick && known.is_none() {
            let (mut shard, home) = table.shard(hash);
            let (algorithm, line) = shard.line_mut(home);
            if let Some(slot) = line.find(tag(hash, 0)) {
                let decision = algorithm.decide(&mut line.states[slot], now, cost);
                if cost > 0 {
                    line.set_denied(slot, decision.is_denied());
                }
                if !decision.is_denied() {
                    table.last_denial(hash).hide_of(hash);
                } else if cost == 1 && shard.is_busy {
                    table.show(&mut shard, (home, slot), (hash, now));
                }
                drop(shard);
                // Not after the block: what tells the two apart would be a figure of the decision, which would then
                // be computed even if no caller reads it.
                return done(now, decision);
            }
        }
        let local = self;
        let decide = || TableEntry { local, table, hash }.decide(now, cost);
        done(now, known.unwrap_or_else(decide))
    }

    #[inline]
    fn entry<K: Hash + ?Sized>(&self, key: &K) -> TableEntry<'_, A, C> {
        let in_use = self.shared.in_use();
        TableEntry {
            local: self,
            table: &in_use.table,
            hash: in_use.hasher.hash_one(key),
        }
    }
}

impl<A: Algorithm, C: Timer> Local<A, C> {
    /// Waits until a cost of 1 is admitted for this key, and takes it.
    ///
    /// This is [`Limiter::until_ready`](crate::Limiter::until_ready) for one key: the callers of a
    /// key are served first come, first served if the algorithm books turns, and no runtime is
    /// needed. If the table is full and its policy is
    /// [`Overflow::Deny`], the caller waits for a slot.
    ///
    /// # Cancel safety
    /// Dropping the future gives the queue position back.
    ///
    /// If several limits of a set can make the call wait, what time has returned since the call is not
    /// given back again: the turn in one of them may have come.
    ///
    /// ```
    /// # #[cfg(not(feature = "tokio"))] fn main() {}
    /// # #[cfg(feature = "tokio")]
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// use tower_throttle::{Local, Quota, TokenBucket};
    ///
    /// let limiter = Local::new(TokenBucket::new(Quota::per_second(10).burst(1)));
    /// let start = tokio::time::Instant::now();
    /// for _ in 0..5 {
    ///     limiter.until_ready("api.example.com").await;
    ///     limiter.until_ready("api.example.org").await;
    /// }
    /// assert_eq!(start.elapsed().as_millis(), 400);
    /// # }
    /// ```
    pub async fn until_ready<K: Hash + ?Sized>(&self, key: &K) {
        // Without a timeout only a cost above the capacity is denied. A cost of 1 never is.
        let _ = self.acquire(key, 1, Duration::MAX).await;
    }

    /// Waits until `cost` is admitted for this key, for at most `timeout`. If that is not long
    /// enough, the cost is denied at once and nothing is taken.
    ///
    /// # Cancel safety
    /// The same as for [`until_ready`](Self::until_ready).
    ///
    /// ```
    /// # #[cfg(not(feature = "tokio"))] fn main() {}
    /// # #[cfg(feature = "tokio")]
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// use std::time::Duration;
    /// use tower_throttle::{Local, Quota, TokenBucket};
    ///
    /// let limiter = Local::new(TokenBucket::new(Quota::per_second(10)));
    /// assert!(limiter.acquire("alice", 10, Duration::ZERO).await.is_admitted());
    /// let late = limiter.acquire("alice", 5, Duration::from_millis(400)).await;
    /// assert_eq!(late.retry_after, Some(Duration::from_millis(100)));
    /// # }
    /// ```
    pub async fn acquire<K: Hash + ?Sized>(
        &self,
        key: &K,
        cost: u64,
        timeout: Duration,
    ) -> Decision {
        acquire(&self.entry(key), cost, timeout).await
    }
}

/// One key of a table.
struct TableEntry<'a, A: Algorithm, C> {
    local: &'a Local<A, C>,
    table: &'a Table<A>,
    hash: u64,
}

impl<A: Algorithm, C: Clock> TableEntry<'_, A, C> {
    fn remove(&self) {
        self.table.remove(self.hash);
    }

    /// Counts a denial because the table is full. Returns the limit that it names.
    #[cold]
    fn limit_of_full(&self, now: Tick) -> u64 {
        self.local.shared.rules.count(|lost| &lost.denied, now);
        self.local.quota().capacity()
    }
}

impl<A: Algorithm, C: Clock> OneKey for TableEntry<'_, A, C> {
    type Algorithm = A;
    type Clock = C;
    /// When a slot may become free.
    type Full = Tick;

    #[inline]
    fn clock(&self) -> &C {
        &self.local.shared.clock
    }

    fn run<T: StepResult>(
        &self,
        now: Tick,
        keep: bool,
        step: impl Fn(&A, &mut A::State) -> T,
    ) -> Result<T, Tick> {
        let mut result = None;
        let mut step = |algorithm: &A, state: &mut A::State| {
            let outcome = step(self.local.own.as_deref().unwrap_or(algorithm), state);
            let denied = outcome.denied().filter(|_| keep);
            result = Some(outcome);
            denied
        };
        let rules = &self.local.shared.rules;
        self.table.run(rules, (self.hash, now, keep), &mut step)?;
        result.ok_or(now)
    }

    /// Makes the decision here: if a cold function returned it, the decisions of others would be in memory too, where each
    /// takes 10 ns more.
    #[inline]
    fn deny(&self, free: Tick, now: Tick) -> Decision {
        let limit = self.limit_of_full(now);
        let wait = free.as_nanos().saturating_sub(now.as_nanos());
        Decision::new(Verdict::Deny, limit, 0, Some(wait), wait)
    }

    #[cold]
    fn lose(&self, _: Tick, now: Tick) {
        self.local.shared.rules.count(|lost| &lost.charges, now);
    }
}

/// Clones share the table.
impl<A: Algorithm, C> Clone for Local<A, C> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            own: self.own.clone(),
        }
    }
}

/// Manual impl: derive would print millions of slots.
impl<A: Algorithm, C: Clock> fmt::Debug for Local<A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local")
            .field("algorithm", &self.algorithm())
            .field("clock", &self.shared.clock)
            .field("overflow", &self.shared.rules.overflow)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(tower_throttle_loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::{OnceLock, Weak};

    use super::*;
    use crate::algorithm::TokenBucket;
    use crate::sync::try_lock;

    /// Notes whether changes were excluded when it was read last.
    #[derive(Clone, Debug, Default)]
    struct LockClock(Arc<(OnceLock<Weak<LockedTable>>, AtomicBool)>);

    type LockedTable = LocalInner<TokenBucket, LockClock>;

    impl Clock for LockClock {
        fn now(&self) -> Tick {
            let (table, was_locked) = &*self.0;
            if let Some(inner) = table.get().and_then(Weak::upgrade) {
                let is_locked = try_lock(&inner.change).is_none();
                was_locked.store(is_locked, Relaxed);
            }
            Tick::ZERO
        }
    }

    /// Otherwise a later change could have an earlier moment.
    #[test]
    fn the_moment_of_a_change_is_read_while_other_changes_wait() {
        let bucket = |limit| TokenBucket::new(Quota::per_second(limit));
        let clock = LockClock::default();
        let local = Local::new(bucket(1)).with_clock(clock.clone());
        // The clock is read for a table in use.
        let _ = local.peek(&1, 1);
        let inner = Arc::downgrade(&local.shared);
        clock.0.0.set(inner).expect("not set before");
        let changed = local.set_algorithm(bucket(2));
        changed.expect("a valid algorithm");
        assert!(clock.0.1.load(Relaxed));
    }

    #[test]
    fn a_change_reaches_a_table_that_is_allocated_and_not_used() {
        let local = Local::new(TokenBucket::new(Quota::per_second(1)));
        local.allocate();
        let _ = local.set_algorithm(TokenBucket::new(Quota::per_second(2)));
        assert_eq!(local.check(&1, 1).limit, 2);
    }

    #[test]
    fn a_capacity_is_from_1_to_2_to_the_power_of_36() {
        let local = || Local::new(TokenBucket::new(Quota::per_second(1)));
        let is_allowed = |keys| local().try_capacity(keys).is_ok();
        let capacities = [0, 1, 1 << 36, (1 << 36) + 1].map(is_allowed);
        assert_eq!(capacities, [false, true, true, false]);
    }
}
