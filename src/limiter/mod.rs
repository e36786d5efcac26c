//! An algorithm on its own: one key, no tower.

mod atomic_state;

use std::{fmt, mem, time::Duration};

use self::atomic_state::AtomicState;
use crate::algorithm::{Algorithm, Inherit, IntoAlgorithm, Packing, take_up_to};
use crate::clock::{Clock, MonotonicClock, Timer};
use crate::decision::{Decision, Verdict};
use crate::error::ConfigError;
use crate::quota::Quota;

/// One limit for whatever asks it: a sampler, a job, the calls of a client.
///
/// Share it by reference or in an `Arc`; every method takes `&self`. The state is a single atomic
/// where it fits in 64 bits (a fixed window, token bucket, meter or sliding window with ordinary
/// figures) and changes without a lock; otherwise, and after the quota has been changed while
/// running, it stands behind a mutex held for one decision.
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
pub struct Limiter<A: Algorithm, C = MonotonicClock> {
    cell: AtomicState<A>,
    clock: C,
}

impl<A: Algorithm> Limiter<A> {
    /// A limiter on the system's monotonic clock. Takes an algorithm or a tuple of them.
    pub fn new(algorithm: impl IntoAlgorithm<Algorithm = A>) -> Self {
        Self::with_clock(algorithm, MonotonicClock)
    }
}

impl<A: Algorithm, C: Clock> Limiter<A, C> {
    /// A limiter on a clock of your own, such as [`ManualClock`](crate::ManualClock) in a test.
    pub fn with_clock(algorithm: impl IntoAlgorithm<Algorithm = A>, clock: C) -> Self {
        let cell = AtomicState::new(algorithm.into_algorithm(), clock.now());
        Self { cell, clock }
    }

    /// Decides on one request of cost 1.
    #[expect(clippy::inline_always, reason = "as for `AtomicState::decide`")]
    #[inline(always)]
    pub fn check(&self) -> Decision {
        self.check_n(1)
    }

    /// Decides on one request of `cost`. Nothing is taken unless all of it is; a cost of 0 is a
    /// look.
    #[expect(clippy::inline_always, reason = "as for `AtomicState::decide`")]
    #[inline(always)]
    pub fn check_n(&self, cost: u64) -> Decision {
        self.cell.decide(self.clock.now(), cost)
    }

    /// The decision that [`check`](Self::check) would give, taking nothing.
    #[inline]
    pub fn peek(&self) -> Decision {
        self.peek_n(1)
    }

    /// The decision that [`check_n`](Self::check_n) would give, taking nothing.
    pub fn peek_n(&self, cost: u64) -> Decision {
        let now = self.clock.now();
        self.cell
            .look(|algorithm, state| algorithm.peek(state, now, cost))
    }

    /// Whether one request goes through now. One that would have to wait does not, and takes
    /// nothing.
    #[inline]
    pub fn try_acquire(&self) -> bool {
        self.try_acquire_n(1)
    }

    /// Whether a request of `cost` goes through now. One that would have to wait does not, and
    /// takes nothing.
    #[inline]
    pub fn try_acquire_n(&self, cost: u64) -> bool {
        let now = self.clock.now();
        self.cell
            .transition(|algorithm, state| {
                // A request that would wait takes nothing.
                let looked = algorithm.peek(state, now, cost);
                if !looked.is_admitted() {
                    return looked;
                }
                algorithm.decide(state, now, cost)
            })
            .is_admitted()
    }

    /// Takes what is there, at most `most`; answers how much that was.
    pub fn take_up_to(&self, most: u64) -> u64 {
        let now = self.clock.now();
        self.cell
            .transition(|algorithm, state| take_up_to(algorithm, state, now, most).0)
    }

    /// Gives back what a request took that came to nothing. Never more than was there.
    pub fn refund(&self, cost: u64) {
        let now = self.clock.now();
        self.cell
            .transition(|algorithm, state| algorithm.refund(state, now, cost));
    }

    /// Counts `cost` as spent even if that is more than allowed, such as a cost known only
    /// afterwards. Answers how long until the debt this leaves, if any, is paid.
    pub fn charge(&self, cost: u64) -> Duration {
        let now = self.clock.now();
        self.cell
            .transition(|algorithm, state| algorithm.charge(state, now, cost))
    }

    /// Forgets everything: as if it had just been made.
    pub fn reset(&self) {
        let now = self.clock.now();
        self.cell
            .transition(|algorithm, state| *state = algorithm.fresh(now));
    }

    /// The quota it decides by now; its [`period`](Quota::period) is the size of a window.
    pub fn quota(&self) -> Quota {
        self.cell.look(|algorithm, _| algorithm.quota())
    }

    /// Changes the quota while running. What is used stays used; see [`Inherit::AsIs`].
    ///
    /// # Errors
    /// If the algorithm has no such quota; a set of several limits takes
    /// [`set_algorithm`](Self::set_algorithm).
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
        let algorithm = self.cell.look(|algorithm, _| algorithm.with_quota(quota))?;
        self.set_algorithm(algorithm, Inherit::AsIs);
        Ok(())
    }

    /// Changes anything about the algorithm while running.
    pub fn set_algorithm(&self, algorithm: impl IntoAlgorithm<Algorithm = A>, inherit: Inherit) {
        let now = self.clock.now();
        self.cell.replace(algorithm.into_algorithm(), now, inherit);
    }
}

impl<A: Algorithm, C: Timer> Limiter<A, C> {
    /// Waits until one request may go through and takes it: to pace a loop or the calls of a
    /// client.
    ///
    /// An algorithm that keeps a line (token bucket, leaky bucket, warm-up) gives each caller its
    /// place at once, so callers go first come first served; with the others each caller tries
    /// again when its time has come.
    ///
    /// # Cancel safety
    /// Dropping the future before it is ready gives the place back, and everyone behind moves up
    /// from then on; those who already sleep keep their time.
    ///
    /// ```
    /// # #[cfg(not(feature = "tokio"))] fn main() {}
    /// # #[cfg(feature = "tokio")]
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// use std::time::Duration;
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
        // Without a deadline only a cost above the capacity is refused, and 1 never is.
        let _ = self.acquire(1, Duration::MAX).await;
    }

    /// As [`until_ready`](Self::until_ready), for a request of `cost` and at most `timeout` of
    /// waiting. Denied at once, having taken nothing, if its turn would come later, or never.
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
        let deadline = self.clock.now().plus(timeout);
        loop {
            let now = self.clock.now();
            let left = deadline.since(now);
            let (mut decision, retry) = self.cell.transition(|algorithm, state| {
                let decision = algorithm.reserve(state, now, cost, left);
                // Worth trying again only if that succeeds within the timeout.
                let retry = decision.retry_after.filter(|wait| {
                    let (then, rest) = (now.plus(*wait), left.saturating_sub(*wait));
                    *wait <= left
                        && !A::Packing::peek_reserve(algorithm, state, then, cost, rest).is_denied()
                });
                (decision, retry)
            });
            match (decision.verdict, retry) {
                (Verdict::Wait(wait), _) => {
                    let place = RefundGuard {
                        limiter: self,
                        cost,
                    };
                    self.clock.sleep_until(now.plus(wait)).await;
                    mem::forget(place);
                    decision.verdict = Verdict::Admit;
                    return decision;
                }
                (Verdict::Deny, Some(wait)) => {
                    self.clock.sleep_until(now.plus(wait)).await;
                }
                _ => return decision,
            }
        }
    }
}

/// The place of a caller who waits; given back if it leaves before its turn.
struct RefundGuard<'a, A: Algorithm, C: Clock> {
    limiter: &'a Limiter<A, C>,
    cost: u64,
}

impl<A: Algorithm, C: Clock> Drop for RefundGuard<'_, A, C> {
    fn drop(&mut self) {
        self.limiter.refund(self.cost);
    }
}

/// By hand, so that the state is read as it is used: with one look, not field by field.
impl<A: Algorithm, C: fmt::Debug> fmt::Debug for Limiter<A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (algorithm, state) = self
            .cell
            .look(|algorithm, state| (algorithm.clone(), state.clone()));
        f.debug_struct("Limiter")
            .field("algorithm", &algorithm)
            .field("state", &state)
            .field("clock", &self.clock)
            .finish()
    }
}
