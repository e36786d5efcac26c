//! The bucket behind [`TokenBucket`](super::TokenBucket), and behind the figures of governor's algorithm.

use std::time::Duration;

use super::interval::{ExactNanos, Interval};
use super::{Cost, GiveBack};
use crate::clock::{Tick, nanos};
use crate::decision::{Decision, Verdict};
use crate::quota::Quota;

/// How many times as long as an empty bucket a key is used at most after a change. A loop of changes whose
/// rates differ less forgets nothing.
const LONGEST: u64 = 10;

/// A capacity and a rate. The state of a key is the moment when its bucket is unused again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) interval: Interval,
    pub(super) capacity: u64,
    /// The time that the whole capacity is worth; at most 10 years.
    pub(super) depth: ExactNanos,
    /// The most that it may owe.
    pub(super) debt: u64,
    /// How long a step is in nanoseconds; 0 for a steady refill. In steps time stands still between two refills.
    pub(super) step: u64,
}

impl Bucket {
    pub(super) const fn new(quota: &Quota) -> Self {
        let interval = Interval::new(quota);
        Self {
            depth: interval.time_for(quota.capacity()),
            capacity: quota.capacity(),
            interval,
            debt: 0,
            step: 0,
        }
    }

    /// The moment up to which tokens have come back.
    #[inline]
    pub(super) const fn refilled_at(&self, now: Tick) -> Tick {
        match now.as_nanos().checked_rem(self.step) {
            None => now,
            Some(since) => Tick::from_nanos(now.as_nanos() - since),
        }
    }

    /// The time from `now` to the refill at which this many nanoseconds have passed since the last one.
    pub(super) const fn until_refill(&self, ns: u64, now: Tick) -> u64 {
        let Some(since) = now.as_nanos().checked_rem(self.step) else {
            return ns;
        };
        let steps = ns.div_ceil(self.step);
        steps.saturating_mul(self.step).saturating_sub(since)
    }

    /// Takes `cost` if it is available now.
    #[expect(
        clippy::inline_always,
        reason = "so that figures that are not read are not computed: 131 instructions of a decision, not 185"
    )]
    #[inline(always)]
    pub(super) fn take(&self, state: &mut ExactNanos, now: Tick, cost: u64) -> Decision {
        let Some(interval) = self.interval.whole(state.fraction | self.step) else {
            // If this decision were returned as it comes, both would be returned through memory.
            let (after, decision) = self.take_uneven(*state, now, cost);
            *state = after;
            return decision;
        };
        let bucket = Self {
            interval,
            capacity: self.capacity,
            depth: ExactNanos::from_nanos(self.depth.ns),
            debt: self.debt,
            step: 0,
        };
        let before = ExactNanos::from_nanos(state.ns);
        bucket.take_inner(before, now, cost, |after| state.ns = after.ns)
    }

    fn take_uneven(&self, mut state: ExactNanos, now: Tick, cost: u64) -> (ExactNanos, Decision) {
        let refilled = self.refilled_at(now);
        let mut decision = self.take_inner(state, refilled, cost, |after| state = after);
        if self.step > 0 {
            let until = |span| Duration::from_nanos(self.until_refill(nanos(span), now));
            decision.retry_after = decision.retry_after.map(until);
            decision.reset_after = until(decision.reset_after);
        }
        (state, decision)
    }

    #[expect(clippy::inline_always, reason = "as for `take`")]
    #[inline(always)]
    fn take_inner(
        &self,
        before: ExactNanos,
        now: Tick,
        cost: u64,
        set: impl FnOnce(ExactNanos),
    ) -> Decision {
        let due = before.max(ExactNanos::from_tick(now));
        let end = self.tolerance_end(now);
        let after = self.interval.add(due, self.interval.time_for(cost));
        if cost == 0 {
            return self.decision(Verdict::Admit, due, end, now, None);
        }
        if after <= end {
            set(after);
            return self.decision(Verdict::Admit, after, end, now, None);
        }
        if cost > self.capacity.saturating_add(self.debt) {
            return self.decision(Verdict::Deny, due, end, now, None);
        }
        let missing = self.missing((due, after), end);
        if missing == ExactNanos::ZERO {
            set(after);
            return self.decision(Verdict::Admit, after, end, now, None);
        }
        self.decision(Verdict::Deny, due, end, now, Some(missing.ceil()))
    }

    /// How long until a request can take a cost that is due and then ends so.
    #[inline]
    fn missing(&self, (due, after): (ExactNanos, ExactNanos), end: ExactNanos) -> ExactNanos {
        if self.debt == 0 {
            return self.interval.sub(after, end);
        }
        // Until it owes nothing, and until the cost does not exceed the debt.
        let deepest = self.interval.add(end, self.interval.time_for(self.debt));
        let owed = self.interval.sub(due, end);
        owed.max(self.interval.sub(after, deepest))
    }

    /// Gives back what is still taken of `cost`; a turn that is not used only if it is the last.
    pub(super) fn refund(&self, state: &mut ExactNanos, now: Tick, cost: Cost, why: GiveBack) {
        let before = self
            .interval
            .sub(*state, self.interval.time_for(cost.units));
        let is_last = |turn| {
            let end = self.tolerance_end(turn);
            self.missing((before, *state), end) == ExactNanos::ZERO
        };
        if cost.is_due(now, why, is_last) {
            let unused = ExactNanos::from_tick(now);
            *state = self.interval.apply_refund(*state, unused, cost, now);
        }
    }

    /// When a bucket that is empty at `now` is unused again.
    #[inline]
    pub(super) const fn tolerance_end(&self, now: Tick) -> ExactNanos {
        ExactNanos {
            ns: now.as_nanos() + self.depth.ns,
            fraction: self.depth.fraction,
        }
    }

    #[inline]
    pub(super) fn decision(
        &self,
        verdict: Verdict,
        due: ExactNanos,
        end: ExactNanos,
        now: Tick,
        retry_after: Option<u64>,
    ) -> Decision {
        let (dividend, divisor) = self.interval.units_ratio(self.interval.sub(end, due));
        let reset_after = due.nanos_since(now);
        Decision::new(verdict, self.capacity, 0, retry_after, reset_after)
            .with_remaining_ratio(dividend, divisor)
    }

    /// Takes `cost` even if it is not available. Returns the time until the debt is paid.
    pub(super) fn charge(&self, state: &mut ExactNanos, now: Tick, cost: u64) -> u64 {
        let present = ExactNanos::from_tick(now);
        if cost > 0 {
            let time = self.interval.time_for(cost);
            *state = self.interval.add((*state).max(present), time);
        }
        self.interval.sub(*state, self.tolerance_end(now)).ceil()
    }

    /// Turns a state of `from` into one of this bucket: what was used `then` is used `now`. At a much lower rate
    /// that could take years, so it is unused again when it would have been before, or at the latest
    /// when [`LONGEST`] empty ones would be.
    pub(super) fn convert(
        &self,
        state: ExactNanos,
        from: &Self,
        (then, now): (Tick, Tick),
    ) -> ExactNanos {
        let then = ExactNanos::from_tick(then);
        let used = from.interval.sub(state.max(then), then);
        let due = self.with_used(self.interval.convert(used, &from.interval), now);
        let longest = self.interval.time_for(LONGEST * self.capacity);
        let before = ExactNanos::from_nanos(state.ceil());
        due.min(before.max(self.with_used(longest, now)))
    }

    /// The state of a bucket of which `used` is used at `now`.
    pub(super) const fn with_used(&self, used: ExactNanos, now: Tick) -> ExactNanos {
        self.interval.add(ExactNanos::from_tick(now), used)
    }
}
