//! One limit without a key and without tower.

use std::convert::Infallible;
use std::fmt;
use std::io::{self, Read, Write};
use std::time::Duration;

use crate::acquire::{OneKey, StepResult, acquire};
use crate::algorithm::{Algorithm, IntoAlgorithm};
use crate::clock::{Clock, MonotonicClock, Tick, Timer};
use crate::decision::Decision;
use crate::denied::LastDenial;
use crate::error::{ConfigError, expect_valid};
use crate::quota::Quota;
use crate::saved::{Reading, SaveState, SavedKind, Writing, read_checked};
use crate::sync::{Mutex, MutexGuard, lock, lock_busy};

/// One limit without a key: for a sampler, a job, or the calls of a client.
///
/// All methods take `&self`; share it by reference or in an `Arc`. [`Local`](crate::Local) has the
/// same methods with a key as their first argument.
///
/// The state is behind a lock that is held for one decision. A denial of a cost of 1 is repeated without it.
///
/// ```
/// use tower_throttle::{Limiter, Quota, TokenBucket};
///
/// static NOISY: std::sync::LazyLock<Limiter<TokenBucket>> =
///     std::sync::LazyLock::new(|| Limiter::new(TokenBucket::new(Quota::per_second(5))));
///
/// for n in 0..1_000 {
///     if NOISY.check(1).is_admitted() {
///         println!("seen {n} times so far");
///     }
/// }
/// ```
pub struct Limiter<A: Algorithm, C = MonotonicClock> {
    held: Mutex<Held<A>>,
    last_denial: LastDenial,
    clock: C,
}

#[repr(C)]
struct Held<A: Algorithm> {
    /// Beside the lock, so that a thread which takes both from another one takes one cache line.
    state: A::State,
    algorithm: A,
}

impl<A: Algorithm> Limiter<A> {
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

impl<A: Algorithm, C: Clock> Limiter<A, C> {
    fn build(algorithm: A, clock: C) -> Self {
        let state = algorithm.fresh(clock.now());
        Self {
            held: Mutex::new(Held { state, algorithm }),
            last_denial: LastDenial::default(),
            clock,
        }
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
    /// assert!(limiter.check(1).is_admitted());
    /// assert!(limiter.check(1).is_denied());
    /// clock.advance(Duration::from_secs(1));
    /// assert!(limiter.check(1).is_admitted());
    /// ```
    #[must_use]
    pub fn with_clock<D: Clock>(self, clock: D) -> Limiter<A, D> {
        let algorithm = lock(&self.held).algorithm.clone();
        Limiter::build(algorithm, clock)
    }

    /// Decides on one request of `cost`. Takes either the whole cost or nothing. A cost of 0 takes
    /// nothing and is admitted.
    #[expect(
        clippy::inline_always,
        reason = "a program with two calls has one function for both, which builds a decision in memory: 124 instructions, not 70"
    )]
    #[inline(always)]
    pub fn check(&self, cost: u64) -> Decision {
        let now = self.clock.now();
        if let Some(denial) = self.last_denial.of(0, now).filter(|_| cost == 1) {
            return denial;
        }
        let mut held = lock_busy(&self.held, |_| ());
        if held.algorithm.capabilities().is_user_code {
            drop(held);
            return OneKey::decide(self, now, cost);
        }
        let Held { algorithm, state } = &mut *held;
        let decision = algorithm.decide(state, now, cost);
        if cost == 1 && decision.is_denied() {
            self.last_denial.show(0, now, algorithm, state);
        } else {
            self.last_denial.hide();
        }
        decision
    }

    /// For anything but a request.
    fn lock_to_change(&self) -> MutexGuard<'_, Held<A>> {
        let held = lock_busy(&self.held, |_| ());
        self.last_denial.hide();
        held
    }

    /// Returns the decision that [`check`](Self::check) would return, and takes nothing.
    pub fn peek(&self, cost: u64) -> Decision {
        OneKey::peek(self, cost)
    }

    /// Takes `cost` and books a turn if the wait is at most `max_wait`. Takes nothing and denies
    /// otherwise. The decision says how long to wait; see [`algorithm::reserve`](crate::algorithm::reserve).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{LeakyBucket, Limiter, Quota, Verdict};
    ///
    /// let limiter = Limiter::new(LeakyBucket::new(Quota::per_hour(1)));
    /// assert!(limiter.check(1).is_admitted());
    /// let placed = limiter.reserve(1, Duration::from_secs(7_200));
    /// assert!(matches!(placed.verdict, Verdict::Wait(_)));
    /// limiter.refund(1); // gives the turn back
    /// ```
    pub fn reserve(&self, cost: u64, max_wait: Duration) -> Decision {
        OneKey::reserve(self, cost, max_wait)
    }

    /// Gives back `cost` that was taken just now and not used. It never makes more available than an
    /// unused limit has.
    pub fn refund(&self, cost: u64) {
        OneKey::refund(self, cost);
    }

    /// Takes `cost` even if it exceeds the limit: for a cost that is known only afterwards. Returns
    /// how long it takes until no debt is left.
    pub fn charge(&self, cost: u64) -> Duration {
        OneKey::charge(self, cost)
    }

    /// Makes the limit unused again.
    pub fn reset(&self) {
        let now = self.clock.now();
        let mut held = self.lock_to_change();
        held.state = held.algorithm.fresh(now);
    }

    /// Changes the quota at run time. What is used stays used.
    ///
    /// # Errors
    /// If the algorithm has no such quota. Several limits have no single quota; use
    /// [`set_algorithm`](Self::set_algorithm) for them.
    ///
    /// ```
    /// use tower_throttle::{FixedWindow, Limiter, Quota};
    ///
    /// let limiter = Limiter::new(FixedWindow::new(Quota::per_day(100)));
    /// let _ = limiter.check(40);
    /// limiter.set_quota(Quota::per_day(60))?;
    /// assert_eq!(limiter.peek(1).remaining(), 20);
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn set_quota(&self, quota: Quota) -> Result<(), ConfigError> {
        self.change(|algorithm| algorithm.with_quota(quota))
    }

    /// Changes the algorithm's settings at run time.
    ///
    /// # Errors
    /// If a setting is invalid or has no effect.
    pub fn set_algorithm(
        &self,
        algorithm: impl IntoAlgorithm<Algorithm = A>,
    ) -> Result<(), ConfigError> {
        let algorithm = algorithm.into_algorithm();
        self.change(|_| Ok(algorithm))
    }

    /// Decides by what `change` makes of the algorithm, of which no other change is lost.
    fn change(&self, change: impl FnOnce(&A) -> Result<A, ConfigError>) -> Result<(), ConfigError> {
        let mut held = self.lock_to_change();
        let algorithm = change(&held.algorithm)?;
        algorithm.validate()?;
        let now = self.clock.now();
        let mut state = held.state.clone();
        algorithm.rescale(&mut state, &held.algorithm, now);
        *held = Held { state, algorithm };
        Ok(())
    }
}

impl<A: Algorithm, C: Clock> SaveState for Limiter<A, C> {
    fn save(&self, writer: &mut dyn Write) -> io::Result<()> {
        let (algorithm, state) = {
            let held = lock(&self.held);
            (held.algorithm.clone(), held.state.clone())
        };
        let mut out = Writing::limit(SavedKind::Limiter, &algorithm, &self.clock)?;
        out.state(&algorithm, &state)?;
        out.finish(writer)
    }

    fn load(&self, reader: &mut dyn Read) -> io::Result<()> {
        let bytes = read_checked(SavedKind::Limiter, reader)?;
        let mut reading = Reading(&bytes);
        let mut held = self.lock_to_change();
        let saved = reading.limit(&held.algorithm, &self.clock)?;
        let state = saved.state(&held.algorithm, &mut reading)?;
        reading.end()?;
        held.state = state.unwrap_or_else(|| held.algorithm.fresh(saved.now()));
        Ok(())
    }
}

impl<A: Algorithm, C: Timer> Limiter<A, C> {
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
}

impl<A: Algorithm, C: Clock> OneKey for Limiter<A, C> {
    type Algorithm = A;
    type Clock = C;
    type Full = Infallible;

    fn clock(&self) -> &C {
        &self.clock
    }

    fn run<T: StepResult>(
        &self,
        _: Tick,
        _: bool,
        step: impl Fn(&A, &mut A::State) -> T,
    ) -> Result<T, Infallible> {
        let mut held = self.lock_to_change();
        let Held { algorithm, state } = &mut *held;
        if !algorithm.capabilities().is_user_code {
            return Ok(step(algorithm, state));
        }
        // So that a panic changes nothing.
        let mut copy = state.clone();
        let outcome = step(algorithm, &mut copy);
        *state = copy;
        Ok(outcome)
    }

    fn deny(&self, full: Infallible, _: Tick) -> Decision {
        match full {}
    }

    fn lose(&self, full: Infallible, _: Tick) {
        match full {}
    }
}

/// Manual impl: derive would show the lock and the last denial.
impl<A: Algorithm, C: fmt::Debug> fmt::Debug for Limiter<A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = lock(&self.held);
        f.debug_struct("Limiter")
            .field("algorithm", &held.algorithm)
            .field("state", &held.state)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}
