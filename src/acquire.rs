//! The operations on the state of one key, shared by [`Limiter`](crate::Limiter) and [`Local`](crate::Local).

use std::time::Duration;

use crate::algorithm::{self, Algorithm, Cost, GiveBack};
use crate::clock::{Clock, Tick, Timer};
use crate::decision::{Decision, LineCosts, Verdict};

/// The result of an operation on a state.
pub(crate) trait StepResult {
    /// Whether a request was denied. `None` if it was no request.
    fn denied(&self) -> Option<bool> {
        None
    }
}

impl StepResult for Decision {
    fn denied(&self) -> Option<bool> {
        Some(self.is_denied())
    }
}

impl StepResult for Attempt {
    fn denied(&self) -> Option<bool> {
        self.decision.denied()
    }
}

/// The decision on a request that is not made.
struct Peeked(Decision);
impl StepResult for Peeked {}

/// A charge.
impl StepResult for Duration {}

impl StepResult for Option<[Duration; 2]> {}

/// `None` if nothing was decided.
impl StepResult for Option<Decision> {
    fn denied(&self) -> Option<bool> {
        self.as_ref().map(Decision::is_denied)
    }
}

/// A refund.
impl StepResult for () {}

/// The state of one key: the one of a limiter, or that of a key in a table.
pub(crate) trait OneKey {
    type Algorithm: Algorithm;
    type Clock: Clock;
    /// There is no place for the state.
    type Full;

    fn clock(&self) -> &Self::Clock;

    /// Runs `step` on the state. It may run several times, and must depend on nothing but its
    /// arguments. A state that is not stored yet is stored only if `keep`.
    fn run<T: StepResult>(
        &self,
        now: Tick,
        keep: bool,
        step: impl Fn(&Self::Algorithm, &mut StateOf<Self>) -> T,
    ) -> Result<T, Self::Full>;

    /// The denial of a request for whose key there is no place.
    fn deny(&self, full: Self::Full, now: Tick) -> Decision;

    /// Counts a charge for whose key there is no place.
    fn lose(&self, full: Self::Full, now: Tick);

    fn or_denied(
        &self,
        cost: u64,
        step: impl Fn(&Self::Algorithm, &mut StateOf<Self>, Tick) -> Decision,
    ) -> Decision {
        let now = self.clock().now();
        let decided = self.run(now, cost > 0, |algorithm, state| {
            step(algorithm, state, now)
        });
        decided.unwrap_or_else(|full| self.deny(full, now))
    }

    fn decide(&self, now: Tick, cost: u64) -> Decision {
        let decided = self.run(now, cost > 0, |algorithm, state| {
            algorithm.decide(state, now, cost)
        });
        decided.unwrap_or_else(|full| self.deny(full, now))
    }

    fn peek(&self, cost: u64) -> Decision {
        self.peek_by(|algorithm, state, now| algorithm.peek(state, now, cost))
    }

    /// Returns what `step` decides, which changes nothing.
    fn peek_by(
        &self,
        step: impl Fn(&Self::Algorithm, &mut StateOf<Self>, Tick) -> Decision,
    ) -> Decision {
        let now = self.clock().now();
        let peeked = self.run(now, false, |algorithm, state| {
            Peeked(step(algorithm, state, now))
        });
        peeked.map_or_else(|full| self.deny(full, now), |Peeked(decision)| decision)
    }

    fn reserve(&self, cost: u64, max_wait: Duration) -> Decision {
        self.or_denied(cost, |algorithm, state, now| {
            algorithm::reserve(algorithm, state, now, cost, max_wait)
        })
    }

    /// See [`Backend::take_turn`](crate::store::Backend::take_turn). `None` if the limit counts denials.
    fn take_turn(&self, (at, late): (Tick, Duration), cost: u64) -> Option<Decision> {
        let taken = self.run(at, cost > 0, |algorithm, state| {
            if algorithm.capabilities().counts_denials {
                return None;
            }
            let decision = algorithm.take_turn(state, at, cost);
            let in_time = |wait: &Duration| !wait.is_zero() && *wait <= late;
            let Some(wait) = decision.retry_after.filter(in_time) else {
                return Some(decision);
            };
            let mut later = algorithm.take_turn(state, at.plus(wait), cost);
            match later.verdict {
                Verdict::Admit => later.verdict = Verdict::Wait(wait),
                _ => later.retry_after = later.retry_after.map(|more| wait.saturating_add(more)),
            }
            Some(later)
        });
        taken.unwrap_or_else(|full| Some(self.deny(full, at)))
    }

    /// See [`Algorithm::expected_wait`].
    fn expected_wait(&self, at: Tick, costs: LineCosts) -> Option<[Duration; 2]> {
        let expected = self.run(at, false, |algorithm, state| {
            algorithm.expected_wait(state, at, costs)
        });
        expected.unwrap_or_else(|full| self.deny(full, at).retry_after.map(|wait| [wait; 2]))
    }

    /// Gives back `cost`, as if it had been taken now.
    fn refund(&self, cost: u64) {
        let now = self.clock().now();
        let cost = Cost {
            units: cost,
            at: now,
        };
        // A key without a place has nothing to refund.
        let _ = self.run(now, false, |algorithm, state| {
            algorithm.refund(state, now, cost, GiveBack::Refund);
        });
    }

    fn charge(&self, cost: u64) -> Duration {
        let now = self.clock().now();
        let charged = self.run(now, cost > 0, |algorithm, state| {
            algorithm.charge(state, now, cost)
        });
        charged.unwrap_or_else(|full| {
            if cost > 0 {
                self.lose(full, now);
            }
            Duration::ZERO
        })
    }

    /// Makes one [`attempt`].
    fn attempt(&self, now: Tick, cost: u64, max_wait: Duration) -> Attempt {
        let attempted = self.run(now, cost > 0, |algorithm, state| {
            attempt(algorithm, state, now, cost, max_wait)
        });
        attempted.unwrap_or_else(|full| {
            let decision = self.deny(full, now);
            let retry = decision.retry_after.filter(|retry| *retry <= max_wait);
            Attempt { decision, retry }
        })
    }

    /// Gives back `cost`: see [`cancel`].
    fn cancel(&self, taken_at: Tick, turn: Tick, cost: u64) {
        let now = self.clock().now();
        let _ = self.run(now, false, |algorithm, state| {
            cancel(algorithm, state, (taken_at, turn), now, cost);
        });
    }
}

/// The state of one key.
pub(crate) type StateOf<T> = <<T as OneKey>::Algorithm as Algorithm>::State;

/// One attempt to take a cost, with some time left to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) decision: Decision,
    /// Set if the cost was denied now but another attempt after this time succeeds before the
    /// deadline, provided that no other caller takes the cost first.
    pub(crate) retry: Option<Duration>,
}

/// Takes `cost` now, or a queue position that is reached within `max_wait`.
fn attempt<A: Algorithm>(
    algorithm: &A,
    state: &mut A::State,
    now: Tick,
    cost: u64,
    max_wait: Duration,
) -> Attempt {
    let retry_of = |decision: &Decision, state: &A::State| {
        decision.retry_after.filter(|retry| {
            // A window may admit the cost by then. A queue that is too long now will still be too
            // long, because less time is left.
            max_wait.checked_sub(*retry).is_some_and(|left| {
                let at = now.plus(*retry);
                !algorithm.peek_within(state, at, cost, left).is_denied()
            })
        })
    };
    if algorithm.capabilities().counts_denials {
        // A caller that goes on waiting is not denied.
        let decision = algorithm.peek_within(state, now, cost, max_wait);
        let retry = retry_of(&decision, state);
        if retry.is_some() {
            return Attempt { decision, retry };
        }
    }
    let decision = algorithm::reserve(algorithm, state, now, cost, max_wait);
    let retry = retry_of(&decision, state);
    Attempt { decision, retry }
}

/// Gives back `cost`, which was taken at `taken_at` for the turn at `turn`, if that turn is the last. A single limit
/// counts from the turn. In a set only the last of its turns is known.
fn cancel<A: Algorithm>(
    algorithm: &A,
    state: &mut A::State,
    (taken_at, turn): (Tick, Tick),
    now: Tick,
    cost: u64,
) {
    let is_single = algorithm.capabilities().limits == 1;
    let at = if is_single { turn } else { taken_at };
    algorithm.refund(state, now, Cost { units: cost, at }, GiveBack::Cancel);
}

/// Waits until `cost` is admitted, for at most `timeout`. If that is not long enough, the cost is
/// denied at once and nothing is taken.
///
/// Dropping the future gives the queue position back.
pub(crate) async fn acquire<T>(target: &T, cost: u64, timeout: Duration) -> Decision
where
    T: OneKey<Clock: Timer>,
{
    let clock = target.clock();
    let deadline = clock.now().plus(timeout);
    loop {
        let now = clock.now();
        let Attempt {
            mut decision,
            retry,
        } = target.attempt(now, cost, deadline.since(now));
        if let Verdict::Wait(wait) = decision.verdict {
            let guard = RefundGuard {
                target,
                taken_at: now,
                // A wait is rounded up to a whole nanosecond.
                turn: now.plus(wait.saturating_sub(Duration::from_nanos(1))),
                cost,
            };
            sleep_until(clock, now.plus(wait)).await;
            std::mem::forget(guard);
            decision.verdict = Verdict::Admit;
            return decision;
        }
        let Some(retry) = retry else {
            return decision;
        };
        // At least one nanosecond, so that time passes between two attempts.
        sleep_until(clock, now.plus(retry.max(Duration::from_nanos(1)))).await;
    }
}

/// A timer would round a moment that has passed up to one that has not.
async fn sleep_until(clock: &impl Timer, at: Tick) {
    if at > clock.now() {
        clock.sleep_until(at).await;
    }
}

/// A queue position. It is given back if the future is dropped before its turn.
struct RefundGuard<'a, T: OneKey> {
    target: &'a T,
    taken_at: Tick,
    turn: Tick,
    cost: u64,
}

impl<T: OneKey> Drop for RefundGuard<'_, T> {
    fn drop(&mut self) {
        self.target.cancel(self.taken_at, self.turn, self.cost);
    }
}

#[cfg(all(test, not(tower_throttle_loom)))]
mod tests {
    use super::*;
    use crate::algorithm::{Algorithm, FixedWindow, IntoAlgorithm, LeakyBucket};
    use crate::quota::Quota;

    fn at(ms: u64) -> Tick {
        Tick::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_call_that_leaves_gives_its_turn_back_if_it_is_the_last() {
        let bucket = LeakyBucket::new(Quota::per_second(1).burst(1));
        let left = |turn: u64, left_at: u64| {
            let mut state = bucket.fresh(at(0));
            for turn in [0, 1_000, 2_000] {
                let decision = algorithm::reserve(&bucket, &mut state, at(0), 1, Duration::MAX);
                assert_eq!(decision.wait(), Some(Duration::from_millis(turn)));
            }
            // A wait is rounded up.
            let turn = Tick::from_nanos(turn * 1_000_000 - 1);
            cancel(&bucket, &mut state, (at(0), turn), at(left_at), 1);
            bucket.peek(&state, at(left_at), 0).reset_after
        };
        let ms = Duration::from_millis;
        assert_eq!(left(2_000, 0), ms(2_000), "the last one");
        // The last one, just before its turn.
        assert_eq!(left(2_000, 1_999), ms(1));
        assert_eq!(left(2_000, 2_000), ms(1_000), "its turn has come");
        assert_eq!(left(1_000, 500), ms(2_500), "another one waits behind it");
    }

    /// In a set a window has all of its cost back, and the turns of buckets pass unused.
    #[test]
    fn a_call_that_leaves_a_set_gives_back_what_has_no_turn() {
        let line = LeakyBucket::new(Quota::per_second(1).burst(1));
        let set = (line, FixedWindow::new(Quota::per_minute(10))).into_algorithm();
        let mut state = set.fresh(at(0));
        for _ in 0..2 {
            let decision = algorithm::reserve(&set, &mut state, at(0), 1, Duration::MAX);
            assert!(!decision.is_denied());
        }
        let turns = state.0;
        cancel(&set, &mut state, (at(0), at(1_000)), at(900), 1);
        assert_eq!(state.0, turns);
        assert_eq!(set.parts().1.peek(&state.1, at(900), 0).remaining(), 9);
    }
}
