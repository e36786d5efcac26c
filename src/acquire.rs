//! Waiting for an admission, shared by [`Limiter`](crate::Limiter) and [`Local`](crate::Local).

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

    /// Gives back `cost`, which was taken at `taken_at` for the turn at `turn`.
    fn cancel(&self, taken_at: Tick, turn: Tick, cost: u64);
}

/// One attempt to take a cost, with some time left to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) decision: Decision,
    /// Set if the cost was denied now but another attempt after this time succeeds before the
    /// deadline, provided that no other caller takes the cost first.
    pub(crate) retry: Option<Duration>,
}

/// Takes `cost` now, or a queue position that is reached within `max_wait`.
pub(crate) fn attempt<A: Algorithm>(
    algorithm: &A,
    state: &mut A::State,
    now: Tick,
    cost: u64,
    max_wait: Duration,
) -> Attempt {
    let decision = algorithm.reserve(state, now, cost, max_wait);
    let retry = decision.retry_after.filter(|retry| {
        // A window may admit the cost by then. A queue that is too long now will still be too long,
        // because less time is left.
        max_wait.checked_sub(*retry).is_some_and(|left| {
            let at = now.plus(*retry);
            !A::Packing::peek_reserve(algorithm, state, at, cost, left).is_denied()
        })
    });
    Attempt { decision, retry }
}

/// Gives back `cost`, which was taken at `taken_at` for the turn at `turn`, before that turn or a
/// little later. A single limit counts from the turn; the others of a set do not wait.
pub(crate) fn cancel<A: Algorithm>(
    algorithm: &A,
    state: &mut A::State,
    (taken_at, turn): (Tick, Tick),
    now: Tick,
    cost: u64,
) {
    if A::Packing::limit_count(algorithm) == 1 {
        algorithm.refund(state, turn, now, cost);
    } else {
        A::Packing::cancel(algorithm, state, taken_at, now, cost);
    }
}

/// Waits until `cost` is admitted, for at most `timeout`. If that is not long enough, the cost is
/// denied at once and nothing is taken.
///
/// Dropping the future gives the queue position back.
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
            let turn = now.plus(wait);
            let guard = RefundGuard {
                target,
                taken_at: now,
                // A wait is rounded up to a whole nanosecond.
                turn: now.plus(wait.saturating_sub(Duration::from_nanos(1))),
                cost,
            };
            clock.sleep_until(turn).await;
            std::mem::forget(guard);
            decision.verdict = Verdict::Admit;
            return decision;
        }
        let Some(retry) = retry else {
            return decision;
        };
        // At least one nanosecond, so that time passes between two attempts.
        let retry = retry.max(Duration::from_nanos(1));
        clock.sleep_until(now.plus(retry)).await;
    }
}

/// A queue position. It is given back if the future is dropped before its turn.
struct RefundGuard<'a, T: Acquire> {
    target: &'a T,
    taken_at: Tick,
    turn: Tick,
    cost: u64,
}

impl<T: Acquire> Drop for RefundGuard<'_, T> {
    fn drop(&mut self) {
        self.target.cancel(self.taken_at, self.turn, self.cost);
    }
}
