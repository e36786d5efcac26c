//! Slots that move: earlier after a refund, and to a new rate after a change of the quota.

use std::task::Waker;
use std::time::Duration;

use super::{Line, Queue};
use crate::clock::{Tick, nanos};
use crate::queue::outcome::CostOutcome;
use crate::quota::Quota;

impl Line {
    /// Applies the refund of a cost that was taken before the cost of any waiter: moves all waiters up
    /// and returns `Refund`. If all costs are equal, the first waiter gets `slot`. If costs differ and
    /// there is no single quota, moves none and returns `Keep`.
    pub(in crate::queue) fn apply_refund(
        &mut self,
        cost: u64,
        slot: Tick,
        quota: impl FnOnce() -> Option<Quota>,
    ) -> CostOutcome {
        if self.len() == 0 {
            return CostOutcome::Refund;
        }
        if let Queue::Uniform(queue) = &mut self.queue {
            if queue.cost == cost {
                queue.move_up(slot);
                return CostOutcome::Refund;
            }
        }
        match quota() {
            Some(quota) => {
                self.as_mixed().shift_earlier(cost, &quota);
                CostOutcome::Refund
            }
            None => CostOutcome::Keep,
        }
    }

    /// Moves all slots earlier by `span`.
    pub(in crate::queue) fn shift_earlier(&mut self, span: Duration) {
        let cost = nanos(span);
        if cost > 0 {
            let per_nano = Quota::per(1, Duration::from_nanos(1));
            self.as_mixed().shift_earlier(cost, &per_nano);
        }
    }

    /// Reschedules all waiters for a quota that has changed, then [releases](Self::release) those that
    /// are due. The cost ahead of each waiter stays the same and is refilled at the new rate.
    pub(in crate::queue) fn reschedule(
        &mut self,
        now: Tick,
        from: &Quota,
        to: &Quota,
        wakers: &mut Vec<Waker>,
    ) {
        let new_slot = |slot: Tick| {
            let span = slot.as_nanos().saturating_sub(now.as_nanos());
            Tick::from_nanos(now.as_nanos().saturating_add(rescale_span(span, from, to)))
        };
        match &mut self.queue {
            Queue::Uniform(queue) => queue.reschedule(new_slot),
            Queue::Mixed(queue) => queue.reschedule(new_slot),
        }
        self.release(now, wakers);
    }
}

/// Converts `span` from the rate of `from` to the rate of `to`, rounded up:
/// span * (to.period / to.limit) / (from.period / from.limit).
pub(super) fn rescale_span(span: u64, from: &Quota, to: &Quota) -> u64 {
    let mut numerator = u128::from(to.period_ns()) * u128::from(from.limit());
    let mut denominator = u128::from(from.period_ns()) * u128::from(to.limit());
    // At most 2^126 each. If `span * numerator` could exceed 128 bits, both are shifted right. The
    // numerator is rounded up and the denominator down, so the result is never too early.
    let excess = (u128::BITS - numerator.leading_zeros()).saturating_sub(u64::BITS - 1);
    if excess > 0 {
        numerator = (numerator >> excess) + 1;
        denominator >>= excess;
    }
    (u128::from(span) * numerator)
        .checked_div(denominator)
        .map_or(u64::MAX, |whole| {
            let left_over = u128::from(span) * numerator % denominator > 0;
            u64::try_from(whole + u128::from(left_over)).unwrap_or(u64::MAX)
        })
}
