//! The states of many keys in this process: a table bounded by construction.

mod attempt;
mod backend;
mod epoch;
mod hash;
mod insertion;
#[cfg(all(test, tower_throttle_loom))]
mod loom_models;
mod migrate;
mod overflow;
mod probe;
mod replica;
mod sets;
#[cfg(all(test, tower_throttle_shuttle))]
mod shuttle_models;
mod slot;
mod spill;
mod states;
mod table;
mod waiting;

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

pub use self::hash::{Seeded, SeededHasher};
pub use self::overflow::{Overflow, Stats};
use self::table::Table;
use crate::algorithm::{Algorithm, Inherit, IntoAlgorithm, Packing, take_now, take_up_to};
use crate::backend::Op;
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::decision::{Decision, Verdict};
use crate::error::{ConfigError, expect_valid};
use crate::quota::Quota;

/// One limit for each of many keys, in this process.
///
/// A table of fixed size, known when it is made. It needs no sweeper: a state expires by itself,
/// and a new key takes the slot of one whose state has expired. Only when there is none near it
/// does the [`Overflow`] policy act. It holds its [`capacity`](Self::capacity) of keys that are all
/// in use, but for one in ten million at most.
///
/// Clones share the table. Keys are anything that hashes; they are hashed with a secret seed and
/// not stored.
///
/// ```
/// use tower_throttle::{Local, Quota, TokenBucket};
///
/// let limiter = Local::new(TokenBucket::new(Quota::per_minute(2)));
/// assert!(limiter.check("alice").is_admitted());
/// assert!(limiter.check("alice").is_admitted());
/// assert!(limiter.check("alice").is_denied());
/// assert!(limiter.check("bob").is_admitted());
/// ```
///
/// # How it scales
/// Different keys meet only where they share a cache line. A decision locks nothing while it is
/// made; an admission writes one line, a denial none, so a crowd that is being refused costs least.
///
/// # What a key is
/// Its hash: 43 bits of it stand in a slot, and the others say which sets that may be in. Two keys
/// that agree in these share one limit: among ten million keys the odds that any two do are less
/// than 4 in a million, and among fewer they are less. Nobody who does not know the seed can look
/// for such a pair.
///
/// # Memory
/// A key takes 23 bytes where its state is one word, 37 where it is two, 46 where it is three and
/// 47 where it is four. One word are token buckets, meters, windows and
/// sliding windows of ordinary figures; a sliding grid takes as many as its counts need. All of it
/// is taken when the table is made. States that do not fit, such as a log, stand outside the
/// table: [`stats`](Self::stats) tells what they take, and [the most that they ever
/// can](Stats::most_bytes).
pub struct Local<A: Algorithm, C = MonotonicClock, S = Seeded> {
    shared: Arc<LocalInner<A, C, S>>,
}

struct LocalInner<A: Algorithm, C, S> {
    table: Table<A>,
    clock: C,
    hasher: S,
    overflow: Overflow,
}

/// A table of this many keys takes 2.3 megabytes.
const DEFAULT_CAPACITY: usize = 100_000;
/// The bytes of a larger table would not fit the address space.
const MAX_CAPACITY: usize = 1 << if usize::BITS < 64 { 25 } else { 36 };
const ALLOWED_CAPACITIES: &str = if usize::BITS < 64 {
    "a number of keys from 1 to 33554432"
} else {
    "a number of keys from 1 to 68719476736"
};

impl<A: Algorithm> Local<A> {
    /// Creates a table with room for 100,000 keys, on the system's monotonic clock, from an
    /// algorithm or a tuple of them.
    ///
    /// # Panics
    /// If a setting of the algorithm is invalid or has no effect.
    #[track_caller]
    pub fn new(algorithm: impl IntoAlgorithm<Algorithm = A>) -> Self {
        let algorithm = algorithm.into_algorithm();
        expect_valid(algorithm.validate());
        Self::build(
            algorithm,
            DEFAULT_CAPACITY,
            Overflow::default(),
            MonotonicClock,
            Seeded::default(),
        )
    }
}

impl<A: Algorithm, C: Clock, S: BuildHasher> Local<A, C, S> {
    fn build(algorithm: A, capacity: usize, overflow: Overflow, clock: C, hasher: S) -> Self {
        let now = clock.now();
        Self {
            shared: Arc::new(LocalInner {
                table: Table::new(algorithm, capacity, overflow, now),
                clock,
                hasher,
                overflow,
            }),
        }
    }
}

/// Settings, made before the first use: each answers a new and empty table.
impl<A: Algorithm, C: Clock + Clone, S: BuildHasher + Clone> Local<A, C, S> {
    /// Sets for how many keys there is room.
    ///
    /// The table has some more slots than that. [`Overflow`] says what happens to further keys. No
    /// capacity is too small to limit: all keys together never get more than one limit per slot.
    ///
    /// # Panics
    /// If `keys` is 0 or above 2^36 (on 32-bit systems 2^25);
    /// [`try_capacity`](Self::try_capacity) returns an error instead.
    ///
    /// ```
    /// use tower_throttle::{Local, Quota, TokenBucket};
    ///
    /// let limiter = Local::new(TokenBucket::new(Quota::per_second(10))).capacity(1_000_000);
    /// assert!(limiter.stats().table_bytes < 24_000_000);
    /// # let _ = limiter.check(&1);
    /// ```
    #[must_use]
    #[track_caller]
    pub fn capacity(self, keys: usize) -> Self {
        expect_valid(self.try_capacity(keys))
    }

    /// Sets for how many keys there is room, for values from a configuration.
    ///
    /// # Errors
    /// If `keys` is 0 or above 2^36 (on 32-bit systems 2^25).
    ///
    /// ```
    /// use tower_throttle::{Local, Quota, TokenBucket};
    ///
    /// let limiter = Local::new(TokenBucket::new(Quota::per_second(10)));
    /// let error = limiter.try_capacity(0).unwrap_err();
    /// assert!(error.to_string().starts_with("capacity: 0 is not allowed; give"));
    /// ```
    pub fn try_capacity(self, keys: usize) -> Result<Self, ConfigError> {
        if keys == 0 || keys > MAX_CAPACITY {
            return Err(ConfigError::out_of_range(
                "capacity",
                keys,
                ALLOWED_CAPACITIES,
            ));
        }
        let LocalInner {
            clock,
            hasher,
            overflow,
            ..
        } = &*self.shared;
        Ok(Self::build(
            self.algorithm(),
            keys,
            *overflow,
            clock.clone(),
            hasher.clone(),
        ))
    }

    /// What happens to a new key when no slot can be forgotten.
    #[must_use]
    pub fn overflow(self, overflow: Overflow) -> Self {
        let LocalInner {
            table,
            clock,
            hasher,
            ..
        } = &*self.shared;
        let capacity = table.stats().capacity;
        Self::build(
            self.algorithm(),
            capacity,
            overflow,
            clock.clone(),
            hasher.clone(),
        )
    }

    /// Uses another clock, such as [`ManualClock`](crate::ManualClock) in a test.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Local, ManualClock, Quota, TokenBucket};
    ///
    /// let clock = ManualClock::new();
    /// let limiter = Local::new(TokenBucket::new(Quota::per_second(1))).with_clock(clock.clone());
    /// assert!(limiter.check(&7).is_admitted());
    /// assert!(limiter.check(&7).is_denied());
    /// clock.advance(Duration::from_secs(1));
    /// assert!(limiter.check(&7).is_admitted());
    /// ```
    #[must_use]
    pub fn with_clock<D: Clock>(self, clock: D) -> Local<A, D, S> {
        let LocalInner {
            table,
            hasher,
            overflow,
            ..
        } = &*self.shared;
        let capacity = table.stats().capacity;
        Local::build(self.algorithm(), capacity, *overflow, clock, hasher.clone())
    }

    /// With another hash of the keys, such as the standard library's `SipHash`.
    ///
    /// ```
    /// use std::hash::RandomState;
    /// use tower_throttle::{Local, Quota, TokenBucket};
    ///
    /// let limiter =
    ///     Local::new(TokenBucket::new(Quota::per_second(1))).with_hasher(RandomState::new());
    /// assert!(limiter.check("alice").is_admitted());
    /// ```
    #[must_use]
    pub fn with_hasher<H: BuildHasher>(self, hasher: H) -> Local<A, C, H> {
        let LocalInner {
            table,
            clock,
            overflow,
            ..
        } = &*self.shared;
        let capacity = table.stats().capacity;
        Local::build(self.algorithm(), capacity, *overflow, clock.clone(), hasher)
    }
}

impl<A: Algorithm, C: Clock, S: BuildHasher> Local<A, C, S> {
    /// Decides on one request of cost 1.
    #[expect(
        clippy::inline_always,
        reason = "so that the figures a caller does not read are not computed"
    )]
    #[inline(always)]
    pub fn check<K: Hash + ?Sized>(&self, key: &K) -> Decision {
        self.check_n(key, 1)
    }

    /// Decides on one request of `cost`. All of the cost is taken or nothing. A cost of 0 takes
    /// nothing and is admitted.
    #[expect(
        clippy::inline_always,
        reason = "so that the figures a caller does not read are not computed"
    )]
    #[inline(always)]
    pub fn check_n<K: Hash + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        let now = self.shared.clock.now();
        let hash = self.hash(key);
        let slow = || self.decide_slow(hash, now, cost).hide_from_optimizer();
        self.shared.table.decide(hash, now, cost, slow)
    }

    #[inline(never)]
    fn decide_slow(&self, hash: u64, now: Tick, cost: u64) -> Decision {
        let decide = |algorithm: &A, state: &mut A::State| algorithm.decide(state, now, cost);
        let decided = self.shared.table.transition(hash, now, cost > 0, decide);
        self.or_denied(decided, now)
    }

    /// Returns the decision that [`check`](Self::check) would return, and takes nothing.
    pub fn peek<K: Hash + ?Sized>(&self, key: &K) -> Decision {
        self.peek_n(key, 1)
    }

    /// Returns the decision that [`check_n`](Self::check_n) would return, and takes nothing. For a
    /// key without a slot it is the decision on an unused key.
    pub fn peek_n<K: Hash + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        let now = self.shared.clock.now();
        let hash = self.hash(key);
        let decided = self.at(hash, now, false, |algorithm: &A, state: &mut A::State| {
            algorithm.peek(state, now, cost)
        });
        self.or_denied(decided, now)
    }

    /// Takes a cost of 1 if it is admitted now. Takes nothing if it would have to wait.
    pub fn try_acquire<K: Hash + ?Sized>(&self, key: &K) -> bool {
        self.try_acquire_n(key, 1)
    }

    /// Takes `cost` if it is admitted now. Takes nothing if it would have to wait.
    pub fn try_acquire_n<K: Hash + ?Sized>(&self, key: &K, cost: u64) -> bool {
        let now = self.shared.clock.now();
        let hash = self.hash(key);
        let decided = self.at(
            hash,
            now,
            cost > 0,
            |algorithm: &A, state: &mut A::State| take_now(algorithm, state, now, cost),
        );
        self.or_denied(decided, now).is_admitted()
    }

    /// Takes `cost` and a place in line, if the wait is at most `max_wait`; else denied. The
    /// decision says how long to wait; see [`Algorithm::reserve`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{LeakyBucket, Local, Quota, Verdict};
    ///
    /// let limiter = Local::new(LeakyBucket::new(Quota::per_hour(1)).queue(10));
    /// assert!(limiter.try_acquire("alice"));
    /// let placed = limiter.reserve("alice", 1, Duration::from_secs(7_200));
    /// assert!(matches!(placed.verdict, Verdict::Wait(_)));
    /// limiter.refund("alice", 1); // gives the place back
    /// ```
    pub fn reserve<K: Hash + ?Sized>(&self, key: &K, cost: u64, max_wait: Duration) -> Decision {
        let now = self.shared.clock.now();
        let hash = self.hash(key);
        let decided = self.at(
            hash,
            now,
            cost > 0,
            |algorithm: &A, state: &mut A::State| algorithm.reserve(state, now, cost, max_wait),
        );
        self.or_denied(decided, now)
    }

    /// Takes as much as is available, at most `max`. Returns how much was taken.
    pub fn take_up_to<K: Hash + ?Sized>(&self, key: &K, max: u64) -> u64 {
        let now = self.shared.clock.now();
        let hash = self.hash(key);
        self.at(hash, now, max > 0, |algorithm: &A, state: &mut A::State| {
            take_up_to(algorithm, state, now, max).0
        })
        .unwrap_or(0)
    }

    /// Gives back `cost` that was taken just now and not used. The state never gets better than unused.
    pub fn refund<K: Hash + ?Sized>(&self, key: &K, cost: u64) {
        let now = self.shared.clock.now();
        self.refund_hash(self.hash(key), now, now, cost);
    }

    /// Gives back `cost` that was taken at `taken_at`, a moment of this limiter's clock. What time has
    /// returned since then is not returned again.
    pub fn refund_from<K: Hash + ?Sized>(&self, key: &K, taken_at: Tick, cost: u64) {
        let now = self.shared.clock.now();
        self.refund_hash(self.hash(key), taken_at, now, cost);
    }

    fn refund_hash(&self, hash: u64, taken_at: Tick, now: Tick, cost: u64) {
        // A key without a slot has nothing to give back.
        let _ = self.at(hash, now, false, |algorithm: &A, state: &mut A::State| {
            algorithm.refund(state, taken_at, now, cost);
        });
    }

    /// Takes `cost` even if that is more than allowed, such as a cost that is known only
    /// afterwards. Returns how long it takes until no debt is left.
    pub fn charge<K: Hash + ?Sized>(&self, key: &K, cost: u64) -> Duration {
        let now = self.shared.clock.now();
        let hash = self.hash(key);
        self.at(
            hash,
            now,
            cost > 0,
            |algorithm: &A, state: &mut A::State| algorithm.charge(state, now, cost),
        )
        .unwrap_or_default()
    }

    /// Makes the key's state as good as unused.
    pub fn reset<K: Hash + ?Sized>(&self, key: &K) {
        self.shared.table.remove(self.hash(key));
    }

    /// The present quota. Of several limits it is that of the first.
    pub fn quota(&self) -> Quota {
        self.shared.table.epochs.current().algorithm().quota()
    }

    /// Changes the quota at run time. What is used stays used; see [`Inherit::AsIs`].
    ///
    /// Each key's state is converted when the key is next used, as of the time of this call.
    ///
    /// # Errors
    /// If the algorithm has no such quota, or if its states would take more words than the slots
    /// have. Several limits have no single quota; use [`set_algorithm`](Self::set_algorithm) for
    /// them.
    ///
    /// ```
    /// use tower_throttle::{FixedWindow, Local, Quota};
    ///
    /// let limiter = Local::new(FixedWindow::new(Quota::per_day(100)));
    /// let _ = limiter.check_n("alice", 40);
    /// limiter.set_quota(Quota::per_day(60))?;
    /// assert_eq!(limiter.peek("alice").remaining(), 20);
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn set_quota(&self, quota: Quota) -> Result<(), ConfigError> {
        self.set_algorithm(self.algorithm().with_quota(quota)?, Inherit::AsIs)
    }

    /// Changes the algorithm's settings at run time.
    ///
    /// # Errors
    /// If a setting is invalid or has no effect, or if the algorithm's states take more words than
    /// the slots have, which the first algorithm decided.
    pub fn set_algorithm(
        &self,
        algorithm: impl IntoAlgorithm<Algorithm = A>,
        inherit: Inherit,
    ) -> Result<(), ConfigError> {
        let algorithm = algorithm.into_algorithm();
        algorithm.validate()?;
        if A::Packing::word_count(&algorithm) > self.shared.table.state_words() {
            return Err(ConfigError::Unsupported {
                what: "a policy whose states take more words than the slots of this table have",
                instead: "make the table with the widest policy first, and then set this one",
            });
        }
        let now = self.shared.clock.now();
        self.shared.table.set_algorithm(algorithm, now, inherit);
        Ok(())
    }

    /// Whether a change of the quota reschedules queued requests.
    pub(crate) fn replans_line(&self) -> bool {
        self.shared
            .table
            .epochs
            .current()
            .algorithm()
            .replans_line()
    }

    /// Sizes and counters of the table.
    pub fn stats(&self) -> Stats {
        self.shared.table.stats()
    }

    fn algorithm(&self) -> A {
        self.shared.table.epochs.current().algorithm().clone()
    }

    #[inline]
    fn hash<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        self.shared.hasher.hash_one(key)
    }

    /// Applies an operation to the key with this hash, apart from the fast path.
    #[inline(never)]
    fn apply_hashed(&self, hash: u64, op: Op) -> Decision {
        let now = self.shared.clock.now();
        let keep = match op {
            Op::Take(cost) | Op::Charge(cost) => cost > 0,
            _ => false,
        };
        if op == Op::Reset {
            self.shared.table.remove(hash);
        }
        let step = |algorithm: &A, state: &mut A::State| {
            match op {
                Op::Take(cost) => return algorithm.decide(state, now, cost),
                Op::Peek(cost) => return algorithm.peek(state, now, cost),
                Op::Refund(cost) => algorithm.refund(state, now, now, cost),
                Op::Charge(cost) => {
                    algorithm.charge(state, now, cost);
                }
                Op::Reset => {}
            }
            algorithm.peek(state, now, 0)
        };
        match (self.shared.table.transition(hash, now, keep, step), op) {
            (Ok(decision), _) => decision,
            // Nothing was charged: the figures are those of a fresh key.
            (Err(_), Op::Charge(_)) => self.apply_hashed(hash, Op::Peek(0)),
            (Err(free), _) => self.deny_full(free, now),
        }
    }

    fn at<T>(
        &self,
        hash: u64,
        now: Tick,
        keep: bool,
        step: impl Fn(&A, &mut A::State) -> T,
    ) -> Result<T, Tick> {
        self.shared.table.transition(hash, now, keep, step)
    }

    /// The denial of a key without a slot.
    #[expect(
        clippy::inline_always,
        reason = "so that the figures a caller does not read are not computed"
    )]
    #[inline(always)]
    fn or_denied(&self, decided: Result<Decision, Tick>, now: Tick) -> Decision {
        match decided {
            Ok(decision) => decision,
            Err(free) => self.deny_full(free, now),
        }
    }

    #[cold]
    fn deny_full(&self, free: Tick, now: Tick) -> Decision {
        self.shared.table.count_denied();
        let wait = free.as_nanos().saturating_sub(now.as_nanos());
        let limit = self.quota().capacity();
        Decision::new(Verdict::Deny, limit, 0, Some(wait), wait)
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

/// By hand: the policy and the figures, not millions of slots.
impl<A: Algorithm, C: fmt::Debug, S> fmt::Debug for Local<A, C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = &self.shared.table;
        f.debug_struct("Local")
            .field("algorithm", table.epochs.current().algorithm())
            .field("clock", &self.shared.clock)
            .field("overflow", &self.shared.overflow)
            .field("stats", &table.stats())
            .finish_non_exhaustive()
    }
}
