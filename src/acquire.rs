//! Waiting for an admission, for [`Limiter`](crate::Limiter) and [`Local`](crate::Local) alike.

use std::time::Duration;

use crate::algorithm::{Algorithm, Packing};
use crate::clock::{Clock, Tick, Timer};
use crate::decision::{Decision, Verdict};

/// The state of one key in a limiter.
pub(crate) trait Acquire {
    type Clock: Timer;

    fn clock(&self) -> &Self::Clock;

    /// Makes one [`attempt`] on the state.
    fn attempt(&self, now: Tick, cost: u64, max_wait: Duration) -> Attempt;

    /// Gives back `cost` that was taken at `taken_at`.
    fn refund(&self, taken_at: Tick, cost: u64);
}

/// One attempt to take a cost, with some time left to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) decision: Decision,
    /// Denied now; another attempt after this time succeeds, and in time, if there are no rivals.
    pub(crate) retry: Option<Duration>,
}

/// Takes `cost`, or a place in line that is reached within `max_wait`.
pub(crate) fn attempt<A: Algorithm>(
    algorithm: &A,
    state: &mut A::State,
    now: Tick,
    cost: u64,
    max_wait: Duration,
) -> Attempt {
    let decision = algorithm.reserve(state, now, cost, max_wait);
    let retry = decision.retry_after.filter(|retry| {
        // A window may admit it then. A line that is too long now is still too long then, for there
        // is less time left.
        max_wait.checked_sub(*retry).is_some_and(|left| {
            let at = now.plus(*retry);
            !A::Packing::peek_reserve(algorithm, state, at, cost, left).is_denied()
        })
    });
    Attempt { decision, retry }
}

/// Waits until `cost` is admitted, at most `timeout`. Denied at once, with nothing taken, if that
/// takes longer.
///
/// Dropping the future gives the place in line back.
pub(crate) async fn acquire(target: &impl Acquire, cost: u64, timeout: Duration) -> Decision {
    let clock = target.clock();
    let deadline = clock.now().plus(timeout);
    loop {
        let now = clock.now();
        let Attempt {
            mut decision,
            retry,
        } = target.attempt(now, cost, deadline.since(now));
        if let Verdict::Wait(wait) = decision.verdict {
            let place = RefundGuard { target, cost };
            clock.sleep_until(now.plus(wait)).await;
            std::mem::forget(place);
            decision.verdict = Verdict::Admit;
            return decision;
        }
        let Some(retry) = retry else {
            return decision;
        };
        // At least until the next moment, so that time passes between two attempts.
        let retry = retry.max(Duration::from_nanos(1));
        clock.sleep_until(now.plus(retry)).await;
    }
}

/// A place in line, given back if the future is dropped before its turn.
struct RefundGuard<'a, T: Acquire> {
    target: &'a T,
    cost: u64,
}

impl<T: Acquire> Drop for RefundGuard<'_, T> {
    fn drop(&mut self) {
        // Its turn has not come, so time has returned nothing of its cost yet.
        self.target.refund(self.target.clock().now(), self.cost);
    }
}
