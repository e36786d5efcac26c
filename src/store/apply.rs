//! An operation on a state, for the stores that run the algorithm in this process.

use std::time::Duration;

use crate::acquire::OneKey;
use crate::algorithm::{self, Algorithm, Cost, GiveBack};
use crate::backend::Op;
use crate::clock::{Clock, Tick};
use crate::decision::{Decision, Verdict};
use crate::quota::{Plan, Quota};
use crate::receipt::Receipt;

/// Applies `op` to the state of a key. A reset is up to the store.
pub(super) fn apply_op<A: Algorithm>(
    algorithm: &A,
    state: &mut A::State,
    now: Tick,
    op: Op,
) -> Decision {
    let mut give_back = |cost, receipt: Receipt, why| {
        let taken_at = Tick::from_nanos(receipt.moment());
        let (units, at) = (cost, taken_at);
        algorithm.refund(state, now, Cost { units, at }, why);
    };
    match op {
        Op::Take(cost) => {
            let decision = algorithm.decide(state, now, cost);
            return with_receipt(algorithm, decision, now);
        }
        Op::Reserve {
            cost,
            queue,
            max_wait,
        } => {
            let most = longest_wait(&algorithm.quotas(), queue, max_wait);
            let decision = algorithm::reserve(algorithm, state, now, cost, most);
            return with_receipt(algorithm, decision, now);
        }
        Op::Peek(cost) => return algorithm.peek(state, now, cost),
        Op::Refund(cost, receipt) => give_back(cost, receipt, GiveBack::Refund),
        Op::Cancel(cost, receipt) => give_back(cost, receipt, GiveBack::Cancel),
        Op::Forgive(cost, receipt) => give_back(cost, receipt, GiveBack::Forgive),
        Op::Charge(cost) => {
            algorithm.charge(state, now, cost);
        }
        Op::Reset => {}
    }
    algorithm.peek(state, now, 0)
}

/// How long the last of `queue` units waits for its turn at the slowest of some limits, but at most `max_wait`.
pub(super) fn longest_wait(quotas: &[Quota], queue: u64, max_wait: Duration) -> Duration {
    let turn = |quota: &Quota| {
        let units = u128::from(queue) * u128::from(quota.period_ns());
        u64::try_from(units.div_ceil(quota.limit().into())).unwrap_or(u64::MAX)
    };
    let longest = quotas.iter().map(turn).max();
    longest.map_or(max_wait, |longest| {
        max_wait.min(Duration::from_nanos(longest))
    })
}

/// Applies `op` to a key, which `remove` makes unused.
pub(super) fn apply_to(key: &impl OneKey, op: Op, remove: impl FnOnce()) -> Decision {
    // What is lost if there is no place for the state.
    let (taken, lost) = match op {
        Op::Peek(_) => {
            return key.peek_by(|algorithm, state, now| apply_op(algorithm, state, now, op));
        }
        Op::Take(cost) | Op::Reserve { cost, .. } => (cost, None),
        Op::Charge(cost) => (cost, Some(cost)),
        _ => (0, None),
    };
    if op == Op::Reset {
        remove();
    }
    let now = key.clock().now();
    let applied = key.run(now, taken > 0, |algorithm, state| {
        apply_op(algorithm, state, now, op)
    });
    match (applied, lost) {
        (Ok(decision), _) => decision,
        // Return the figures of an unused key.
        (Err(full), Some(cost)) => {
            if cost > 0 {
                key.lose(full, now);
            }
            key.peek(0)
        }
        (Err(full), None) => key.deny(full, now),
    }
}

impl Plan {
    /// What a key gets that is under no quota. `None` if the state of the key decides, or is changed.
    pub(crate) fn decide(self, op: Op) -> Option<Decision> {
        let decided = |verdict, units| Decision::new(verdict, units, units, None, 0);
        match (self, op) {
            (Self::Blocked, Op::Take(_) | Op::Reserve { .. } | Op::Peek(_)) => {
                Some(decided(Verdict::Deny, 0))
            }
            // Nothing is taken, so nothing is given back.
            (Self::Unlimited, Op::Take(_) | Op::Reserve { .. } | Op::Peek(_) | Op::Charge(_)) => {
                Some(decided(Verdict::Admit, u64::MAX).with_receipt(Receipt::at(0)))
            }
            _ => None,
        }
    }
}

/// The moment from which time returns the cost: that of the turn if there is a single limit. The
/// parts of a set that do not wait return theirs from the decision on. A wait is rounded up, so the
/// turn may come by a part of a nanosecond earlier.
pub(super) fn taken_at(limits: usize, verdict: Verdict, now: Tick) -> Tick {
    match verdict {
        Verdict::Wait(wait) if limits == 1 => {
            now.plus(wait.saturating_sub(Duration::from_nanos(1)))
        }
        _ => now,
    }
}

pub(super) fn with_receipt<A: Algorithm>(algorithm: &A, decision: Decision, now: Tick) -> Decision {
    let moment = taken_at(algorithm.capabilities().limits, decision.verdict, now);
    decision.with_receipt(Receipt::at(moment.as_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_taken_at_the_turn_of_its_request_if_a_single_limit_makes_it_wait() {
        let taken = |limits, verdict| taken_at(limits, verdict, Tick::from_nanos(100)).as_nanos();
        let wait = Verdict::Wait(Duration::from_nanos(10));
        assert_eq!(taken(1, Verdict::Admit), 100);
        assert_eq!(taken(1, wait), 109);
        assert_eq!(taken(2, wait), 100);
    }
}
