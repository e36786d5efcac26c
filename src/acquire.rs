//! The operations on the state of one key, shared by [`Limiter`](crate::Limiter) and [`Local`](crate::Local).

use std::time::Duration;

use crate::algorithm::{Algorithm, Cost, GiveBack, take_now, take_up_to};
use crate::clock::{Clock, Tick, Timer};
use crate::decision::{Decision, Verdict};

/// The result of an operation on a state.
pub(crate) trait Outcome {
    /// Whether a request was denied. `None` if it was no request.
    fn denied(&self) -> Option<bool> {
        None
    }
}

impl Outcome for Decision {
    fn denied(&self) -> Option<bool> {
        Some(self.is_denied())
    }
}

/// How much was taken.
impl Outcome for u64 {
    fn denied(&self) -> Option<bool> {
        Some(*self == 0)
    }
}

impl Outcome for Attempt {
    fn denied(&self) -> Option<bool> {
        self.decision.denied()
    }
}

/// The decision on a request that is not made.
struct Peeked(Decision);
impl Outcome for Peeked {}

/// A charge.
impl Outcome for Duration {}

impl Outcome for Option<Duration> {}

/// `None` if nothing was decided.
impl Outcome for Option<Decision> {
    fn denied(&self) -> Option<bool> {
        self.as_ref().map(Decision::is_denied)
    }
}

/// A refund.
impl Outcome for () {}

/// The state of one key: the one of a limiter, or that of a key in a table.
pub(crate) trait OneKey {
    type Algorithm: Algorithm;
    type Clock: Clock;
    /// There is no place for the state.
    type Full;

    fn clock(&self) -> &Self::Clock;

    /// Runs `step` on the state. It may run several times, and must depend on nothing but its
    /// arguments. A state that is not stored yet is stored only if `keep`.
    fn run<T: Outcome>(
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

    fn peek_n(&self, cost: u64) -> Decision {
        self.peek(|algorithm, state, now| algorithm.peek(state, now, cost))
    }

    /// Returns what `step` decides, which changes nothing.
    fn peek(
        &self,
        step: impl Fn(&Self::Algorithm, &mut StateOf<Self>, Tick) -> Decision,
    ) -> Decision {
        let now = self.clock().now();
        let peeked = self.run(now, false, |algorithm, state| {
            Peeked(step(algorithm, state, now))
        });
        peeked.map_or_else(|full| self.deny(full, now), |Peeked(decision)| decision)
    }

    fn try_acquire_n(&self, cost: u64) -> bool {
        let take =
            |algorithm: &Self::Algorithm, state: &mut _, now| take_now(algorithm, state, now, cost);
        self.or_denied(cost, take).is_admitted()
    }

    fn reserve(&self, cost: u64, max_wait: Duration) -> Decision {
        self.or_denied(cost, |algorithm, state, now| {
            algorithm.reserve(state, now, cost, max_wait)
        })
    }

    /// See [`Algorithm::take_turn`]. `None` if the limit counts denials.
    fn take_turn(&self, at: Tick, cost: u64) -> Option<Decision> {
        let taken = self.run(at, cost > 0, |algorithm, state| {
            let has_turns = !algorithm.capabilities().counts_denials;
            has_turns.then(|| algorithm.take_turn(state, at, cost))
        });
        taken.unwrap_or_else(|full| Some(self.deny(full, at)))
    }

    /// See [`Algorithm::expected_wait`].
    fn expected_wait(&self, at: Tick, ahead: u64, cost: u64) -> Option<Duration> {
        let expected = self.run(at, false, |algorithm, state| {
            algorithm.expected_wait(state, at, ahead, cost)
        });
        expected.unwrap_or_else(|full| self.deny(full, at).retry_after)
    }

    fn take_up_to(&self, most: u64) -> u64 {
        let now = self.clock().now();
        let taken = self.run(now, most > 0, |algorithm, state| {
            take_up_to(algorithm, state, now, most).0
        });
        taken.unwrap_or(0)
    }

    /// Gives back `cost`, taken at this moment, or now.
    fn refund(&self, taken_at: Option<Tick>, cost: u64) {
        let now = self.clock().now();
        let cost = Cost::new(cost, taken_at.unwrap_or(now));
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
                !A::peek_reserve(algorithm, state, at, cost, left).is_denied()
            })
        })
    };
    if algorithm.capabilities().counts_denials {
        // A caller that goes on waiting is not denied.
        let decision = A::peek_reserve(algorithm, state, now, cost, max_wait);
        let retry = retry_of(&decision, state);
        if retry.is_some() {
            return Attempt { decision, retry };
        }
    }
    let decision = algorithm.reserve(state, now, cost, max_wait);
    let retry = retry_of(&decision, state);
    Attempt { decision, retry }
}

/// Gives back `cost`, which was taken at `taken_at` for the turn at `turn`, before that turn or a
/// little later. A single limit counts from the turn. A loan counts from the end of its wait, a
/// nanosecond after `turn`.
///
/// In a set only the last of its turns is known. If a single part can make a request wait, that is
/// the turn of this part, and the others do not wait. If several can, the turns of the others may
/// have come: time has returned some of the cost, at most as much as since the decision. Callers
/// that are in line already keep their turns, so the full cost would be given to one caller more.
fn cancel<A: Algorithm>(
    algorithm: &A,
    state: &mut A::State,
    (taken_at, turn): (Tick, Tick),
    now: Tick,
    cost: u64,
) {
    if algorithm.capabilities().limits == 1 {
        algorithm.refund(state, now, Cost::new(cost, turn), GiveBack::Refund);
    } else if algorithm.capabilities().waiting <= 1 {
        algorithm.refund(state, now, Cost::new(cost, taken_at), GiveBack::Cancel);
    } else {
        algorithm.refund(state, now, Cost::new(cost, taken_at), GiveBack::Refund);
    }
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
    use crate::algorithm::{Algorithm, AnyAlgorithm, FixedWindow, LeakyBucket};
    use crate::quota::Quota;

    fn at(ms: u64) -> Tick {
        Tick::from_nanos(ms * 1_000_000)
    }

    /// When the second part of a set grants a turn to a new request. The first, slower part has
    /// granted turns to three requests at 0 s, of which the second one leaves at `left_at`.
    fn next_turn(left_at: u64) -> Tick {
        let line = |quota| LeakyBucket::new(quota).queue(100);
        let slow = line(Quota::per_second(1));
        let fast = AnyAlgorithm::new(line(Quota::per_second(10)));
        let set = (slow, fast.clone());
        let mut state = set.fresh(at(0));
        for turn in [0, 1_000, 2_000] {
            let decision = set.reserve(&mut state, at(0), 1, Duration::MAX);
            assert_eq!(decision.wait(), Some(Duration::from_millis(turn)));
        }
        cancel(&set, &mut state, (at(0), at(1_000)), at(left_at), 1);
        let wait = fast
            .reserve(&mut state.1, at(left_at), 1, Duration::MAX)
            .wait();
        at(left_at).plus(wait.expect("a turn"))
    }

    /// The three have their turns in the faster line at 0, 100 and 200 ms.
    ///
    /// Shows promise 12.
    #[test]
    fn a_call_that_leaves_between_its_turns_in_two_lines_does_not_bring_another_turn_forward() {
        assert_eq!(next_turn(0), at(200), "nothing was returned");
        assert_eq!(next_turn(40), at(240), "it may have had its turn 40 ms ago");
        for left_at in [100, 150, 250] {
            assert_eq!(next_turn(left_at), at(300), "left at {left_at} ms");
        }
    }

    #[test]
    fn a_call_that_leaves_the_only_line_of_a_set_gives_all_of_its_turn_back() {
        let line = LeakyBucket::new(Quota::per_second(1)).queue(100);
        let set = (line, FixedWindow::new(Quota::per_minute(10)));
        let mut state = set.fresh(at(0));
        for _ in 0..2 {
            assert!(!set.reserve(&mut state, at(0), 1, Duration::MAX).is_denied());
        }
        cancel(&set, &mut state, (at(0), at(1_000)), at(900), 1);
        let mut alone = line.fresh(at(0));
        assert!(line.decide(&mut alone, at(0), 1).is_admitted());
        assert_eq!(state.0, alone);
    }
}
