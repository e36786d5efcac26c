//! One limit without a key and without tower.

mod atomic_state;

use std::fmt;
use std::time::Duration;

use self::atomic_state::AtomicState;
#[cfg(feature = "stream")]
use crate::acquire::acquire_as_of;
use crate::acquire::{Acquire, Attempt, acquire, attempt, cancel};
use crate::algorithm::{Cost, GiveBack, Inherit, IntoAlgorithm, Words, take_now, take_up_to};
use crate::clock::{Clock, MonotonicClock, Tick, Timer};
use crate::decision::Decision;
use crate::error::{ConfigError, expect_valid};
use crate::quota::Quota;

/// One limit without a key: for a sampler, a job, or the calls of a client.
///
/// All methods take `&self`; share it by reference or in an `Arc`. [`Local`](crate::Local) has the
/// same methods with a key as their first argument.
///
/// A state that fits in 64 bits is one atomic and changes without a lock: a fixed window, token
/// bucket, meter or sliding window with ordinary quotas. Other states, and all states after the
/// algorithm was changed at run time, are behind a mutex that is held for one decision.
///
/// ```
/// use tower_throttle::{Limiter, Quota, TokenBucket};
///
/// static NOISY: std::sync::LazyLock<Limiter<TokenBucket>> =
///     std::sync::LazyLock::new(|| Limiter::new(TokenBucket::new(Quota::per_second(5))));
///
/// for n in 0..1_000 {
///     if NOISY.try_acquire() {
///         println!("seen {n} times so far");
///     }
/// }
/// ```
pub struct Limiter<A: Words, C = MonotonicClock> {
    state: AtomicState<A>,
    clock: C,
}

impl<A: Words> Limiter<A> {
    /// Creates a limiter on the system's monotonic clock from an algorithm or a tuple of them.
    ///
    /// # Panics
    /// If a setting of the algorithm is invalid or has no effect.
    #[track_caller]
    pub fn new(algorithm: impl IntoAlgorithm<Algorithm = A>) -> Self {
        let algorithm = algorithm.into_algorithm();
        expect_valid(algorithm.validate());
        Self::build(algorithm, MonotonicClock)
    }
}

impl<A: Words, C: Clock> Limiter<A, C> {
    fn build(algorithm: A, clock: C) -> Self {
        let state = AtomicState::new(algorithm, clock.now());
        Self { state, clock }
    }

    /// Uses another clock, such as [`ManualClock`](crate::ManualClock) in a test. The state starts
    /// afresh.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Limiter, ManualClock, Quota, TokenBucket};
    ///
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::new(TokenBucket::new(Quota::per_second(1))).with_clock(clock.clone());
    /// assert!(limiter.check().is_admitted());
    /// assert!(limiter.check().is_denied());
    /// clock.advance(Duration::from_secs(1));
    /// assert!(limiter.check().is_admitted());
    /// ```
    #[must_use]
    pub fn with_clock<D: Clock>(self, clock: D) -> Limiter<A, D> {
        let algorithm = self.state.read(|algorithm, _| algorithm.clone());
        Limiter::build(algorithm, clock)
    }

    /// Decides on one request of cost 1.
    #[expect(clippy::inline_always, reason = "as for `AtomicState::decide`")]
    #[inline(always)]
    pub fn check(&self) -> Decision {
        self.check_n(1)
    }

    /// Decides on one request of `cost`. Takes either the whole cost or nothing. A cost of 0 takes
    /// nothing and is admitted.
    #[expect(clippy::inline_always, reason = "as for `AtomicState::decide`")]
    #[inline(always)]
    pub fn check_n(&self, cost: u64) -> Decision {
        self.state.decide(self.clock.now(), cost)
    }

    /// Returns the decision that [`check`](Self::check) would return, and takes nothing.
    #[inline]
    pub fn peek(&self) -> Decision {
        self.peek_n(1)
    }

    /// Returns the decision that [`check_n`](Self::check_n) would return, and takes nothing.
    pub fn peek_n(&self, cost: u64) -> Decision {
        let now = self.clock.now();
        self.state
            .read(|algorithm, state| algorithm.peek(state, now, cost))
    }

    /// Takes a cost of 1 if it is admitted now. Takes nothing if it would have to wait.
    #[inline]
    pub fn try_acquire(&self) -> bool {
        self.try_acquire_n(1)
    }

    /// Takes `cost` if it is admitted now. Takes nothing if it would have to wait.
    #[inline]
    pub fn try_acquire_n(&self, cost: u64) -> bool {
        let now = self.clock.now();
        self.state
            .transition(|algorithm, state| take_now(algorithm, state, now, cost))
            .is_admitted()
    }

    /// Takes `cost` and a place in line if the wait is at most `max_wait`. Takes nothing and denies
    /// otherwise. The decision says how long to wait; see [`Algorithm::reserve`](crate::algorithm::Algorithm::reserve).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{LeakyBucket, Limiter, Quota, Verdict};
    ///
    /// let limiter = Limiter::new(LeakyBucket::new(Quota::per_hour(1)).queue(10));
    /// assert!(limiter.try_acquire());
    /// let placed = limiter.reserve(1, Duration::from_secs(7_200));
    /// assert!(matches!(placed.verdict, Verdict::Wait(_)));
    /// limiter.refund(1); // gives the place back
    /// ```
    pub fn reserve(&self, cost: u64, max_wait: Duration) -> Decision {
        let now = self.clock.now();
        self.state
            .transition(|algorithm, state| algorithm.reserve(state, now, cost, max_wait))
    }

    /// Takes as much as is available, at most `max`. Returns how much was taken.
    pub fn take_up_to(&self, max: u64) -> u64 {
        let now = self.clock.now();
        self.state
            .transition(|algorithm, state| take_up_to(algorithm, state, now, max).0)
    }

    /// Gives back `cost` that was taken just now and not used. It never makes more available than an
    /// unused limit has.
    pub fn refund(&self, cost: u64) {
        let now = self.clock.now();
        self.refund_at(now, now, cost);
    }

    /// Gives back `cost` that was taken at `taken_at`, a moment of this limiter's clock. The part that
    /// has become available again since then is not given back a second time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Limiter, ManualClock, Quota, SlidingLog, clock::Clock};
    ///
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::new(SlidingLog::new(Quota::per_second(10))).with_clock(clock.clone());
    /// let taken_at = clock.now();
    /// assert!(limiter.check_n(10).is_admitted());
    /// clock.advance(Duration::from_secs(1));
    /// assert!(limiter.check_n(10).is_admitted());
    /// limiter.refund_from(taken_at, 10);
    /// assert!(limiter.check().is_denied(), "the first ten have expired");
    /// ```
    pub fn refund_from(&self, taken_at: Tick, cost: u64) {
        self.refund_at(taken_at, self.clock.now(), cost);
    }

    fn refund_at(&self, taken_at: Tick, now: Tick, cost: u64) {
        self.state.transition(|algorithm, state| {
            algorithm.refund(state, now, Cost::new(cost, taken_at), GiveBack::Refund);
        });
    }

    /// Takes `cost` even if it exceeds the limit: for a cost that is known only afterwards. Returns
    /// how long it takes until no debt is left.
    pub fn charge(&self, cost: u64) -> Duration {
        let now = self.clock.now();
        self.state
            .transition(|algorithm, state| algorithm.charge(state, now, cost))
    }

    /// Makes the limit unused again.
    pub fn reset(&self) {
        let now = self.clock.now();
        self.state
            .transition(|algorithm, state| *state = algorithm.fresh(now));
    }

    /// The present quota. With several limits, the quota of the first one.
    pub fn quota(&self) -> Quota {
        self.state.read(|algorithm, _| algorithm.quota())
    }

    /// Changes the quota at run time. What is used stays used; see [`Inherit::AsIs`].
    ///
    /// # Errors
    /// If the algorithm has no such quota. Several limits have no single quota; use
    /// [`set_algorithm`](Self::set_algorithm) for them.
    ///
    /// ```
    /// use tower_throttle::{FixedWindow, Limiter, Quota};
    ///
    /// let limiter = Limiter::new(FixedWindow::new(Quota::per_day(100)));
    /// let _ = limiter.check_n(40);
    /// limiter.set_quota(Quota::per_day(60))?;
    /// assert_eq!(limiter.peek().remaining(), 20);
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn set_quota(&self, quota: Quota) -> Result<(), ConfigError> {
        let algorithm = self
            .state
            .read(|algorithm, _| algorithm.with_quota(quota))?;
        self.set_algorithm(algorithm, Inherit::AsIs)
    }

    /// Changes the algorithm's settings at run time.
    ///
    /// # Errors
    /// If a setting is invalid or has no effect.
    pub fn set_algorithm(
        &self,
        algorithm: impl IntoAlgorithm<Algorithm = A>,
        inherit: Inherit,
    ) -> Result<(), ConfigError> {
        let algorithm = algorithm.into_algorithm();
        algorithm.validate()?;
        self.state.replace(algorithm, &self.clock, inherit);
        Ok(())
    }
}

impl<A: Words, C: Timer> Limiter<A, C> {
    /// Waits until a cost of 1 is admitted, and takes it: to pace a loop or the calls of a client.
    ///
    /// An algorithm that keeps a line (token bucket, leaky bucket, warm-up) gives each caller a
    /// place at once, so callers are first come, first served. With the others each caller tries
    /// again when the next cost may be admitted.
    ///
    /// Needs no runtime; see [`MonotonicClock`].
    ///
    /// # Cancel safety
    /// Dropping the future gives the place in line back. Later callers get earlier places. Callers
    /// that are waiting already keep theirs.
    ///
    /// If the algorithm is a tuple and several of its limits can make the call wait, only the part of
    /// the cost that has not become available again since the call is given back.
    ///
    /// ```
    /// # #[cfg(not(feature = "tokio"))] fn main() {}
    /// # #[cfg(feature = "tokio")]
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// use tower_throttle::{Limiter, Quota, TokenBucket};
    ///
    /// let limiter = Limiter::new(TokenBucket::new(Quota::per_second(10).burst(1)));
    /// let start = tokio::time::Instant::now();
    /// for _ in 0..5 {
    ///     limiter.until_ready().await;
    /// }
    /// assert_eq!(start.elapsed().as_millis(), 400);
    /// # }
    /// ```
    pub async fn until_ready(&self) {
        // Without a timeout only a cost above the capacity is denied, and 1 never is.
        let _ = self.acquire(1, Duration::MAX).await;
    }

    /// Waits until `cost` is admitted. If that takes longer than `timeout`, the call takes nothing and
    /// denies at once.
    ///
    /// # Cancel safety
    /// As [`until_ready`](Self::until_ready).
    ///
    /// ```
    /// # #[cfg(not(feature = "tokio"))] fn main() {}
    /// # #[cfg(feature = "tokio")]
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// use std::time::Duration;
    /// use tower_throttle::{Limiter, Quota, TokenBucket};
    ///
    /// let limiter = Limiter::new(TokenBucket::new(Quota::per_second(10)));
    /// assert!(limiter.acquire(10, Duration::ZERO).await.is_admitted());
    /// let late = limiter.acquire(5, Duration::from_millis(400)).await;
    /// assert_eq!(late.retry_after, Some(Duration::from_millis(100)));
    /// # }
    /// ```
    pub async fn acquire(&self, cost: u64, timeout: Duration) -> Decision {
        acquire(self, cost, timeout).await
    }

    /// See [`acquire_as_of`].
    #[cfg(feature = "stream")]
    pub(crate) async fn acquire_as_of(
        &self,
        cost: u64,
        timeout: Duration,
        turn: &mut Option<Tick>,
        late: Duration,
    ) -> Decision {
        acquire_as_of(self, cost, timeout, turn, late).await
    }
}

impl<A: Words, C: Timer> Acquire for Limiter<A, C> {
    type Clock = C;

    fn clock(&self) -> &C {
        &self.clock
    }

    fn attempt(&self, now: Tick, cost: u64, max_wait: Duration) -> Attempt {
        self.state
            .transition(|algorithm, state| attempt(algorithm, state, now, cost, max_wait))
    }

    fn cancel(&self, taken_at: Tick, turn: Tick, cost: u64) {
        let now = self.clock.now();
        self.state
            .transition(|algorithm, state| cancel(algorithm, state, (taken_at, turn), now, cost));
    }
}

/// Manual impl: shows the state as one consistent read, not as the fields that encode it.
impl<A: Words, C: fmt::Debug> fmt::Debug for Limiter<A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (algorithm, state) = self
            .state
            .read(|algorithm, state| (algorithm.clone(), state.clone()));
        f.debug_struct("Limiter")
            .field("algorithm", &algorithm)
            .field("state", &state)
            .field("clock", &self.clock)
            .finish()
    }
}
