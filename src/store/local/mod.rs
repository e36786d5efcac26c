//! A table in this process that stores the states of many keys. Its size is fixed.

mod backend;
mod hash;
mod inner;
mod keyed;
mod line;
mod overflow;
mod rules;
mod saved;
mod settings;
mod shards;
mod table;
mod user_code;

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

pub use self::hash::{Seeded, SeededHasher};
use self::inner::{DEFAULT_CAPACITY, LocalInner, Size};
use self::overflow::may_overflow;
pub use self::overflow::{Overflow, Stats};
use self::table::Table;
use crate::acquire::{OneKey, Outcome, acquire};
use crate::algorithm::{Algorithm, IntoAlgorithm};
use crate::backend::{Bans, Op};
use crate::clock::{Clock, MonotonicClock, Tick, Timer};
use crate::decision::{Decision, Verdict};
use crate::error::{ConfigError, expect_valid};
use crate::quota::Quota;
use crate::store::apply::apply_to;

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
/// for one decision. Threads contend if their keys share a shard. A denial takes the lock as well.
///
/// # Algorithms of your own
/// An algorithm of your own runs on a copy of the state while a lock of the key is held, so a panic in it
/// changes no key. It must not use the table that runs it, and cannot: meanwhile no table of an
/// algorithm of a user decides in this thread. Each request there is denied, nothing is taken,
/// and a change of the algorithm is an error. Tables of this crate's algorithms can be used.
///
/// # Hash collisions
/// The table identifies a key by its hash: 34 bits are stored in a slot, and the high bits choose
/// the cache lines that may hold it. Two keys that agree in these bits share one limit. Among ten million
/// keys the probability that any two do is less than 1 in 1,000, and among a million less than 1 in 10,000.
/// An attacker who does not know the seed cannot search for such a pair.
///
/// # Memory
/// A key takes 31 bytes if its state has at most 16, as those of buckets and fixed windows, and 40 bytes if its
/// state has 24, as a sliding window. A state of two numbers more takes 62, and one of up to 56 bytes 93. All of
/// this memory is allocated once: when a layer is built with the table, by [`allocate`](Self::allocate), or at the
/// first use.
///
/// Larger states, and those that have memory of their own, as logs, are stored outside the table.
/// [`stats`](Self::stats) says how many there are, and [how much memory they take at most](Stats::most_bytes).
pub struct Local<A: Algorithm, C = MonotonicClock, S = Seeded> {
    shared: Arc<LocalInner<A, C, S>>,
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
        LocalInner::new((algorithm, Size::of(keys), MonotonicClock, Seeded::default())).into()
    }
}

impl<A: Algorithm, C: Clock, S: BuildHasher> Local<A, C, S> {
    /// Decides on one request of `cost`. Takes either the whole cost or nothing. A cost of 0 takes
    /// nothing and is admitted.
    #[expect(
        clippy::inline_always,
        reason = "lets the compiler drop the figures that a caller does not read"
    )]
    #[inline(always)]
    pub fn check<K: Hash + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        let entry = self.entry(key);
        entry.decide_quickly(cost, |_, decision| decision, |now| entry.decide(now, cost))
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

    /// Takes as much as is available, at most `max`. Returns how much was taken.
    pub fn take_up_to<K: Hash + ?Sized>(&self, key: &K, max: u64) -> u64 {
        self.entry(key).take_up_to(max)
    }

    /// Gives back `cost` that was taken just now and not used. A refund never leaves more than an
    /// unused key has.
    pub fn refund<K: Hash + ?Sized>(&self, key: &K, cost: u64) {
        self.entry(key).refund(None, cost);
    }

    /// Gives back `cost` that was taken at `taken_at`, a time of this limiter's clock. The part
    /// that has been refilled since then is not given back again.
    pub fn refund_from<K: Hash + ?Sized>(&self, key: &K, taken_at: Tick, cost: u64) {
        self.entry(key).refund(Some(taken_at), cost);
    }

    /// Takes `cost` even if the limit does not allow it, for example because the cost is known only
    /// after the request. Returns the time until no debt is left.
    ///
    /// If the table is full and has no slot for the key, the cost is lost.
    /// [`Losses::lost_charges`](crate::store::Losses::lost_charges) counts that.
    pub fn charge<K: Hash + ?Sized>(&self, key: &K, cost: u64) -> Duration {
        self.entry(key).charge(cost)
    }

    /// Resets the key to unused.
    pub fn reset<K: Hash + ?Sized>(&self, key: &K) {
        self.shared.remove(self.hash(key));
    }

    /// The current quota. If there are several limits, it is the quota of the first.
    pub fn quota(&self) -> Quota {
        self.shared.read_algorithm(A::quota)
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
        self.set_algorithm(self.algorithm().with_quota(quota)?)
    }

    /// Changes the algorithm's settings at run time.
    ///
    /// # Errors
    /// If a setting is invalid or has no effect. Also if keys may share a state
    /// ([`Overflow::Shared`]) and the algorithm contains a
    /// [`Lockout`](crate::Lockout), and if an algorithm of a user calls this while a table runs it.
    pub fn set_algorithm(
        &self,
        algorithm: impl IntoAlgorithm<Algorithm = A>,
    ) -> Result<(), ConfigError> {
        let algorithm = algorithm.into_algorithm();
        algorithm.validate()?;
        may_overflow(&algorithm, self.shared.rules.overflow)?;
        self.shared.set_algorithm(algorithm)
    }

    /// Sizes and counters of the table.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// How many keys a [`Lockout`](crate::Lockout) blocks now. Reads each state.
    ///
    /// In a full table, a key that replaces another one takes over its failures
    /// ([`Overflow`]). So a key that failed once may be blocked, and it counts here.
    /// [`Losses::evicted`](crate::store::Losses::evicted) says whether that has happened.
    ///
    /// ```
    /// use tower_throttle::{Local, Lockout, Quota};
    ///
    /// let logins = Local::new(Lockout::new(Quota::per_hour(1)));
    /// assert!(logins.check("ann", 1).is_admitted());
    /// assert_eq!(logins.blocked(), 1);
    /// ```
    pub fn blocked(&self) -> usize
    where
        A: Bans,
    {
        self.shared.blocked()
    }

    fn algorithm(&self) -> A {
        self.shared.read_algorithm(A::clone)
    }

    #[inline]
    fn hash<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        let in_use = self.shared.in_use();
        in_use.map_or(0, |in_use| in_use.hasher.hash_one(key))
    }

    #[inline]
    fn entry<K: Hash + ?Sized>(&self, key: &K) -> Entry<'_, A, C, S> {
        let in_use = self.shared.in_use();
        Entry {
            inner: &self.shared,
            table: in_use.map(|in_use| &in_use.table),
            hash: in_use.map_or(0, |in_use| in_use.hasher.hash_one(key)),
        }
    }
}

impl<A: Algorithm, C: Timer, S: BuildHasher> Local<A, C, S> {
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
struct Entry<'a, A: Algorithm, C, S> {
    inner: &'a LocalInner<A, C, S>,
    /// `None` for the algorithm that runs.
    table: Option<&'a Table<A>>,
    hash: u64,
}

impl<A: Algorithm, C: Clock, S> Entry<'_, A, C, S> {
    /// Decides for a key in its home line. Returns what `done` makes of the decision, or `rest`, each given
    /// the time; see [`Shards::decide`](shards::Shards::decide).
    #[expect(clippy::inline_always, reason = "as for `Shards::decide`")]
    #[inline(always)]
    fn decide_quickly<T>(
        &self,
        cost: u64,
        done: impl FnOnce(Tick, Decision) -> T,
        rest: impl FnOnce(Tick) -> T,
    ) -> T {
        let now = self.inner.clock.now();
        let quick = self.table.filter(|_| !self.inner.rules.is_user_code);
        let Some(table) = quick else {
            return rest(now);
        };
        table.decide(
            (self.hash, now, cost),
            |decision| done(now, decision),
            || rest(now),
        )
    }

    /// Applies an operation.
    fn apply(&self, op: Op) -> Decision {
        apply_to(self, op, || self.remove())
    }

    fn remove(&self) {
        self.inner.remove(self.hash);
    }
}

impl<A: Algorithm, C: Clock, S> OneKey for Entry<'_, A, C, S> {
    type Algorithm = A;
    type Clock = C;
    /// When a slot may become free.
    type Full = Tick;

    fn clock(&self) -> &C {
        &self.inner.clock
    }

    fn run<T: Outcome>(
        &self,
        now: Tick,
        keep: bool,
        step: impl Fn(&A, &mut A::State) -> T,
    ) -> Result<T, Tick> {
        self.inner.run((self.hash, now, keep), step)
    }

    #[cold]
    fn deny(&self, free: Tick, now: Tick) -> Decision {
        let counters = &self.inner.rules.counters;
        counters.count(|counters| &counters.denied, now);
        let wait = free.as_nanos().saturating_sub(now.as_nanos());
        let limit = self.inner.read_algorithm(A::quota).capacity();
        Decision::new(Verdict::Deny, limit, 0, Some(wait), wait)
    }

    #[cold]
    fn lose(&self, _: Tick, now: Tick) {
        let counters = &self.inner.rules.counters;
        counters.count(|counters| &counters.lost_charges, now);
    }
}

/// Clones share the table.
impl<A: Algorithm, C, S> Clone for Local<A, C, S> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

/// Manual impl: derive would print millions of slots.
impl<A: Algorithm, C: Clock + fmt::Debug, S> fmt::Debug for Local<A, C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local")
            .field("algorithm", &self.shared.read_algorithm(A::clone))
            .field("clock", &self.shared.clock)
            .field("overflow", &self.shared.rules.overflow)
            .field("stats", &self.shared.stats())
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

    type LockedTable = LocalInner<TokenBucket, LockClock, Seeded>;

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
}
