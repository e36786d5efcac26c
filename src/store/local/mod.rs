//! A table in this process that stores the states of many keys. Its size is fixed.

mod backend;
mod cache;
mod epoch;
mod hash;
mod huge_pages;
mod inner;
mod insertion;
#[cfg(all(test, tower_throttle_loom))]
mod loom_models;
mod migrate;
mod overflow;
#[cfg(feature = "tokio")]
pub(super) mod per_key;
mod probe;
mod sets;
mod settings;
#[cfg(all(test, tower_throttle_shuttle))]
mod shuttle_models;
mod slot;
mod spill;
mod table;
mod transition;
mod user_code;
mod waiting;

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

pub use self::hash::{Seeded, SeededHasher};
use self::inner::{DEFAULT_CAPACITY, LocalInner};
use self::overflow::may_overflow;
pub use self::overflow::{Overflow, Stats};
use self::table::Request;
use self::transition::{Outcome, Peeked};
use crate::algorithm::{Cost, GiveBack, Inherit, IntoAlgorithm, Words, take_now, take_up_to};
use crate::backend::{Bans, Op};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::decision::{Decision, Verdict};
use crate::error::{ConfigError, expect_valid};
use crate::quota::Quota;
use crate::store::apply::apply_op;

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
/// assert!(limiter.check("alice").is_admitted());
/// assert!(limiter.check("alice").is_admitted());
/// assert!(limiter.check("alice").is_denied());
/// assert!(limiter.check("bob").is_admitted());
/// ```
///
/// # Scalability
/// Threads that use different keys contend only if the keys share a cache line. An admission writes
/// one cache line, and so does the first denial after it. Later denials write none, so requests
/// that are denied cost the least.
///
/// # Algorithms of your own
/// An algorithm of your own runs on a copy of the state while a lock of the key is held, so a panic in it
/// changes no key. It must not use the table that runs it, and cannot: meanwhile no table of an
/// algorithm of a user decides in this thread. Each request there is denied, nothing is taken,
/// and a change of the algorithm is an error. Tables of this crate's algorithms can be used.
///
/// # Hash collisions
/// The table identifies a key by its hash: 43 bits are stored in a slot, and the high bits choose
/// the sets that may hold it. Two keys that agree in these bits share one limit. Among ten million
/// keys the probability that any two do is less than 4 in a million, and it is lower for fewer
/// keys. An attacker who does not know the seed cannot search for such a pair.
///
/// # Memory
/// A key takes 23 bytes if its state is one word, 37 bytes if it is two, 46 if it is three and 47
/// if it is four. Token buckets, leaky buckets, windows and sliding windows take one word at every
/// rate up to 1,000,000 per second or per minute, except bursts that take more than 36 minutes to
/// refill. A sliding grid takes as many words as its counts
/// need. All of this memory is allocated once: when a layer is built with the table, by
/// [`allocate`](Self::allocate), or at the first use.
///
/// States that do not fit a slot are stored outside the table: logs, and the states of a quota that
/// was set with [`set_quota`](Self::set_quota) and needs more words than the first one.
/// [`stats`](Self::stats) reports how much memory they take, and [how much they can take at
/// most](Stats::most_bytes).
pub struct Local<A: Words, C = MonotonicClock, S = Seeded> {
    shared: Arc<LocalInner<A, C, S>>,
}

impl<A: Words> Local<A> {
    /// Creates a table for 100,000 keys, on the system's monotonic clock, from an algorithm or a
    /// tuple of algorithms.
    ///
    /// # Panics
    /// If a setting of the algorithm is invalid or has no effect.
    #[track_caller]
    pub fn new(algorithm: impl IntoAlgorithm<Algorithm = A>) -> Self {
        let algorithm = algorithm.into_algorithm();
        expect_valid(algorithm.validate());
        let (clock, hasher) = (MonotonicClock, Seeded::default());
        LocalInner::new(
            algorithm,
            DEFAULT_CAPACITY,
            Overflow::default(),
            clock,
            hasher,
        )
        .into()
    }
}

impl<A: Words, C: Clock, S: BuildHasher> Local<A, C, S> {
    /// Decides on one request of cost 1.
    #[expect(
        clippy::inline_always,
        reason = "lets the compiler drop the figures that a caller does not read"
    )]
    #[inline(always)]
    pub fn check<K: Hash + ?Sized>(&self, key: &K) -> Decision {
        self.check_n(key, 1)
    }

    /// Decides on one request of `cost`. Takes either the whole cost or nothing. A cost of 0 takes
    /// nothing and is admitted.
    #[expect(
        clippy::inline_always,
        reason = "lets the compiler drop the figures that a caller does not read"
    )]
    #[inline(always)]
    pub fn check_n<K: Hash + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        let hash = self.hash(key);
        self.decide_hashed(
            hash,
            cost,
            |_, decision| decision,
            |now| self.decide_slowly(hash, now, cost).hide_from_optimizer(),
        )
    }

    /// Decides on the fast path: `done` and `rest` are those of [`Table::decide`], with the time.
    #[expect(clippy::inline_always, reason = "as for `check`")]
    #[inline(always)]
    fn decide_hashed(
        &self,
        hash: u64,
        cost: u64,
        done: impl FnOnce(Tick, Decision) -> Decision,
        rest: impl FnOnce(Tick) -> Decision,
    ) -> Decision {
        let table = self.shared.table();
        let located = table.locate(hash);
        let now = self.shared.clock.now();
        let request = Request {
            now,
            cost,
            admit_only: false,
        };
        table.decide(
            located,
            request,
            |decision| done(now, decision),
            || rest(now),
        )
    }

    #[inline(never)]
    fn decide_slowly(&self, hash: u64, now: Tick, cost: u64) -> Decision {
        let decide = |algorithm: &A, state: &mut A::State| algorithm.decide(state, now, cost);
        let decided = self.at(hash, now, cost > 0, decide);
        decided.unwrap_or_else(|free| self.deny_full(free, now))
    }

    /// Returns the decision that [`check`](Self::check) would return, and takes nothing.
    pub fn peek<K: Hash + ?Sized>(&self, key: &K) -> Decision {
        self.peek_n(key, 1)
    }

    /// Returns the decision that [`check_n`](Self::check_n) would return, and takes nothing. A key
    /// without a slot is treated as unused.
    pub fn peek_n<K: Hash + ?Sized>(&self, key: &K, cost: u64) -> Decision {
        self.peek_hashed(self.hash(key), Op::Peek(cost))
    }

    fn peek_hashed(&self, hash: u64, op: Op) -> Decision {
        let now = self.shared.clock.now();
        let peek =
            |algorithm: &A, state: &mut A::State| Peeked(apply_op(algorithm, state, now, op));
        match self.at(hash, now, false, peek) {
            Ok(Peeked(decision)) => decision,
            Err(free) => self.deny_full(free, now),
        }
    }

    /// Takes a cost of 1 if it is admitted now. Takes nothing if it would have to wait.
    pub fn try_acquire<K: Hash + ?Sized>(&self, key: &K) -> bool {
        self.try_acquire_n(key, 1)
    }

    /// Takes `cost` if it is admitted now. Takes nothing if it would have to wait.
    pub fn try_acquire_n<K: Hash + ?Sized>(&self, key: &K, cost: u64) -> bool {
        let take = |algorithm: &A, state: &mut A::State, now| take_now(algorithm, state, now, cost);
        self.or_denied(self.hash(key), cost > 0, take).is_admitted()
    }

    /// Takes `cost` and a queue position if the wait is at most `max_wait`, and denies it
    /// otherwise. The decision contains the time to wait; see [`Algorithm::reserve`](crate::algorithm::Algorithm::reserve).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{LeakyBucket, Local, Quota, Verdict};
    ///
    /// let limiter = Local::new(LeakyBucket::new(Quota::per_hour(1)).queue(10));
    /// assert!(limiter.try_acquire("alice"));
    /// let placed = limiter.reserve("alice", 1, Duration::from_secs(7_200));
    /// assert!(matches!(placed.verdict, Verdict::Wait(_)));
    /// limiter.refund("alice", 1); // gives the queue position back
    /// ```
    pub fn reserve<K: Hash + ?Sized>(&self, key: &K, cost: u64, max_wait: Duration) -> Decision {
        let reserve = |algorithm: &A, state: &mut A::State, now| {
            algorithm.reserve(state, now, cost, max_wait)
        };
        self.or_denied(self.hash(key), cost > 0, reserve)
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

    /// Gives back `cost` that was taken just now and not used. A refund never leaves more than an
    /// unused key has.
    pub fn refund<K: Hash + ?Sized>(&self, key: &K, cost: u64) {
        let now = self.shared.clock.now();
        self.refund_hash(self.hash(key), now, now, cost);
    }

    /// Gives back `cost` that was taken at `taken_at`, a time of this limiter's clock. The part
    /// that has been refilled since then is not given back again.
    pub fn refund_from<K: Hash + ?Sized>(&self, key: &K, taken_at: Tick, cost: u64) {
        let now = self.shared.clock.now();
        self.refund_hash(self.hash(key), taken_at, now, cost);
    }

    fn refund_hash(&self, hash: u64, taken_at: Tick, now: Tick, cost: u64) {
        // A key without a slot has nothing to refund.
        let _ = self.at(hash, now, false, |algorithm: &A, state: &mut A::State| {
            algorithm.refund(state, now, Cost::new(cost, taken_at), GiveBack::Refund);
        });
    }

    /// Takes `cost` even if the limit does not allow it, for example because the cost is known only
    /// after the request. Returns the time until no debt is left.
    ///
    /// If the table is full and has no slot for the key, the cost is lost.
    /// [`Stats::lost_charges`] counts that.
    pub fn charge<K: Hash + ?Sized>(&self, key: &K, cost: u64) -> Duration {
        let now = self.shared.clock.now();
        let hash = self.hash(key);
        self.at(
            hash,
            now,
            cost > 0,
            |algorithm: &A, state: &mut A::State| algorithm.charge(state, now, cost),
        )
        .unwrap_or_else(|_| self.lose_charge(now, cost))
    }

    /// Resets the key to unused.
    pub fn reset<K: Hash + ?Sized>(&self, key: &K) {
        self.shared.table().remove(self.hash(key));
    }

    /// The current quota. If there are several limits, it is the quota of the first.
    pub fn quota(&self) -> Quota {
        self.shared.read_algorithm(A::quota)
    }

    /// Changes the quota at run time. The usage of each key is kept; see [`Inherit::AsIs`].
    ///
    /// The state of a key is converted when the key is next used. The result is the same as if it
    /// were converted at the time of this call. Decisions still take no lock, but each takes a few
    /// nanoseconds longer. A second change first converts the states that are left from the one before,
    /// which takes 0.1 s for a million keys at most.
    ///
    /// Every quota is accepted. If its states need more words than the slots of this table have,
    /// they are stored outside the table, in at most [`Stats::most_bytes`].
    ///
    /// # Errors
    /// If the algorithm does not support the quota. Several limits have no single quota: use
    /// [`set_algorithm`](Self::set_algorithm).
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
    /// If a setting is invalid or has no effect. Also if keys may share a state
    /// ([`Overflow::Shared`]) and the algorithm contains a
    /// [`Lockout`](crate::Lockout), and if an algorithm of a user calls this while a table runs it.
    pub fn set_algorithm(
        &self,
        algorithm: impl IntoAlgorithm<Algorithm = A>,
        inherit: Inherit,
    ) -> Result<(), ConfigError> {
        let algorithm = algorithm.into_algorithm();
        algorithm.validate()?;
        may_overflow(&algorithm, self.shared.overflow)?;
        let clock = || self.shared.clock.now();
        self.shared.table().set_algorithm(algorithm, clock, inherit)
    }

    /// Whether a change of the quota reschedules queued requests.
    pub(crate) fn replans_line(&self) -> bool {
        self.shared.facts().replans_line
    }

    /// Sizes and counters of the table.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// How many keys a [`Lockout`](crate::Lockout) blocks now. Reads each state.
    ///
    /// In a full table, a key that replaces another one takes over its failures
    /// ([`Overflow`]). So a key that failed once may be blocked, and it counts here.
    /// [`Stats::evicted`](crate::store::local::Stats::evicted) says whether that has happened.
    ///
    /// ```
    /// use tower_throttle::{Local, Lockout, Quota};
    ///
    /// let logins = Local::new(Lockout::new(Quota::per_hour(1)));
    /// assert!(logins.check("ann").is_admitted());
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
        self.shared.hasher.hash_one(key)
    }

    /// Applies an operation to the key with this hash, on the slow path.
    fn apply_hashed(&self, hash: u64, op: Op) -> Decision {
        if matches!(op, Op::Peek(_) | Op::PeekOf(..)) {
            return self.peek_hashed(hash, op);
        }
        // What is lost if the table is full.
        let (taken, lost) = match op {
            Op::Take(cost) | Op::Borrow(cost) => (cost, None),
            Op::Charge(cost) => (cost, Some(cost)),
            Op::Ban(length) => (u64::from(!length.is_zero()), Some(1)),
            _ => (0, None),
        };
        if op == Op::Reset {
            self.shared.table().remove(hash);
        }
        let now = self.shared.clock.now();
        let step = |algorithm: &A, state: &mut A::State| apply_op(algorithm, state, now, op);
        match (self.at(hash, now, taken > 0, step), lost) {
            (Ok(decision), _) => decision,
            // Return the figures of an unused key.
            (Err(_), Some(cost)) => {
                self.lose_charge(now, cost);
                self.peek_hashed(hash, Op::Peek(0))
            }
            (Err(free), None) => self.deny_full(free, now),
        }
    }

    /// Runs `step` on the state of the key with this hash: see [`Table::transition`].
    fn at<T: Outcome>(
        &self,
        hash: u64,
        now: Tick,
        keep: bool,
        step: impl Fn(&A, &mut A::State) -> T,
    ) -> Result<T, Tick> {
        self.shared.table().transition(hash, now, keep, step)
    }

    /// Runs `step` now. Returns what it decides, or a denial if the table is full.
    fn or_denied(
        &self,
        hash: u64,
        keep: bool,
        step: impl Fn(&A, &mut A::State, Tick) -> Decision,
    ) -> Decision {
        let now = self.shared.clock.now();
        let step = |algorithm: &A, state: &mut A::State| step(algorithm, state, now);
        let decided = self.at(hash, now, keep, step);
        decided.unwrap_or_else(|free| self.deny_full(free, now))
    }

    /// Counts a charge for which the table had no slot. The key has no debt.
    #[cold]
    fn lose_charge(&self, now: Tick, cost: u64) -> Duration {
        if cost > 0 {
            let counters = &self.shared.table().counters;
            counters.count(|counters| &counters.lost_charges, now);
        }
        Duration::ZERO
    }

    #[cold]
    fn deny_full(&self, free: Tick, now: Tick) -> Decision {
        let counters = &self.shared.table().counters;
        counters.count(|counters| &counters.denied, now);
        let wait = free.as_nanos().saturating_sub(now.as_nanos());
        let limit = self.quota().capacity();
        Decision::new(Verdict::Deny, limit, 0, Some(wait), wait)
    }
}

/// Clones share the table.
impl<A: Words, C, S> Clone for Local<A, C, S> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

/// Manual impl: derive would print millions of slots.
impl<A: Words, C: Clock + fmt::Debug, S> fmt::Debug for Local<A, C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local")
            .field("algorithm", &self.shared.read_algorithm(A::clone))
            .field("clock", &self.shared.clock)
            .field("overflow", &self.shared.overflow)
            .field("stats", &self.shared.stats())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::{OnceLock, Weak};

    use super::*;
    use crate::algorithm::TokenBucket;
    use crate::clock::ManualClock;
    use crate::sync::try_lock;

    /// Notes whether changes were excluded when it was read last.
    #[derive(Clone, Debug, Default)]
    struct LockClock(Arc<(OnceLock<Weak<LockedTable>>, AtomicBool)>);

    type LockedTable = LocalInner<TokenBucket, LockClock, Seeded>;

    impl Clock for LockClock {
        fn now(&self) -> Tick {
            let (table, was_locked) = &*self.0;
            if let Some(inner) = table.get().and_then(Weak::upgrade) {
                let is_locked = try_lock(&inner.table().change_lock).is_none();
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
        // The table reads the clock when it is built.
        local.allocate();
        let inner = Arc::downgrade(&local.shared);
        clock.0.0.set(inner).expect("not set before");
        let changed = local.set_algorithm(bucket(2), Inherit::AsIs);
        changed.expect("a valid algorithm");
        assert!(clock.0.1.load(Relaxed));
    }

    /// The sets of a state of one word are cache lines, and their headers count the writes.
    ///
    /// Shows promise 108.
    #[test]
    fn an_admission_and_the_first_denial_write_one_cache_line_and_later_denials_none() {
        let local = Local::new(TokenBucket::new(Quota::per_hour(2)))
            .with_clock(ManualClock::new())
            .capacity(1_000);
        assert!(local.check("key").is_admitted(), "a new key");
        let written_by = |admitted| {
            let sets = &local.shared.table().sets;
            let headers =
                || -> Vec<_> { (0..sets.len).map(|at| sets.set(at).lookup(0).0).collect() };
            let before = headers();
            assert_eq!(local.check("key").is_admitted(), admitted);
            let after = headers();
            before.iter().zip(&after).filter(|(a, b)| a != b).count()
        };
        assert_eq!(written_by(true), 1);
        assert_eq!(written_by(false), 1, "the first denial");
        assert_eq!(written_by(false), 0);
        assert_eq!(written_by(false), 0);
    }
}
