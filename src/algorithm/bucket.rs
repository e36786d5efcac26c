//! The bucket that a token bucket empties and a leaky meter fills: they are mirrors of each other.

use super::interval::{ExactNanos, Interval};
use crate::clock::Tick;
use crate::decision::{Decision, Verdict};
use crate::quota::Quota;

/// A capacity under a rate. The state of a key is when its bucket is unused again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) pace: Interval,
    pub(super) capacity: u64,
    /// The time that the whole capacity is worth; at most 2^62 ns.
    pub(super) depth: ExactNanos,
}

impl Bucket {
    pub(super) const fn new(quota: &Quota) -> Self {
        let pace = Interval::new(quota);
        Self {
            depth: pace.span(quota.capacity()),
            capacity: quota.capacity(),
            pace,
        }
    }

    /// Takes `cost` if it is there, or will be after a wait of at most `most`.
    #[expect(
        clippy::inline_always,
        reason = "so that the figures a caller does not read are not computed: half of the time"
    )]
    #[inline(always)]
    pub(super) fn take(
        &self,
        state: &mut ExactNanos,
        now: Tick,
        cost: u64,
        most: ExactNanos,
    ) -> Decision {
        if !self.pace.is_whole() {
            let (after, decision) = self.take_with_fraction(*state, now, cost, most);
            *state = after;
            return decision.elsewhere();
        }
        // With the constants in it, what follows is plain arithmetic of nanoseconds.
        let bucket = Self {
            pace: self.pace.whole(),
            capacity: self.capacity,
            depth: self.depth.whole(),
        };
        *state = state.whole();
        bucket.take_inner(state, now, cost, most.whole())
    }

    #[inline(never)]
    fn take_with_fraction(
        &self,
        mut state: ExactNanos,
        now: Tick,
        cost: u64,
        most: ExactNanos,
    ) -> (ExactNanos, Decision) {
        let decision = self.take_inner(&mut state, now, cost, most);
        (state, decision)
    }

    #[expect(clippy::inline_always, reason = "as for `take`")]
    #[inline(always)]
    fn take_inner(
        &self,
        state: &mut ExactNanos,
        now: Tick,
        cost: u64,
        most: ExactNanos,
    ) -> Decision {
        let due = (*state).max(ExactNanos::at(now));
        let edge = self.edge(now);
        let after = self.pace.add(due, self.pace.span(cost));
        if cost > self.capacity {
            return self.answer(Verdict::Deny, due, edge, now, None);
        }
        if cost == 0 {
            return self.answer(Verdict::Admit, due, edge, now, None);
        }
        if after <= edge {
            *state = after;
            return self.answer(Verdict::Admit, after, edge, now, None);
        }
        let missing = self.pace.sub(after, edge);
        if missing <= most {
            *state = after;
            return self.answer(Verdict::after(missing.ceil()), after, edge, now, None);
        }
        let retry_after = self.pace.sub(missing, most).ceil();
        self.answer(Verdict::Deny, due, edge, now, Some(retry_after))
    }

    /// When a bucket that is used up right now is unused again.
    #[inline]
    const fn edge(&self, now: Tick) -> ExactNanos {
        // 2^63 + 2^62 fits.
        ExactNanos {
            ns: now.as_nanos() + self.depth.ns,
            part: self.depth.part,
        }
    }

    #[expect(clippy::inline_always, reason = "as for `take`")]
    #[inline(always)]
    fn answer(
        &self,
        verdict: Verdict,
        due: ExactNanos,
        edge: ExactNanos,
        now: Tick,
        retry_after: Option<u64>,
    ) -> Decision {
        let (dividend, divisor) = self.pace.ratio(self.pace.sub(edge, due));
        Decision::new(verdict, self.capacity, 0, retry_after, due.after(now))
            .with_remaining_ratio(dividend, divisor)
    }

    /// Takes `cost` even if it is not there; answers the time until what is owed has come back.
    pub(super) fn force(&self, state: &mut ExactNanos, now: Tick, cost: u64) -> u64 {
        let present = ExactNanos::at(now);
        if cost > 0 {
            *state = self.pace.add((*state).max(present), self.pace.span(cost));
        }
        self.pace.sub(*state, self.edge(now)).ceil()
    }

    /// The time that what is used of the capacity, or owed beyond it, is worth.
    pub(super) fn used(&self, state: ExactNanos, now: Tick) -> ExactNanos {
        let present = ExactNanos::at(now);
        self.pace.sub(state.max(present), present)
    }

    /// The state in which `used` is gone at `now`.
    pub(super) const fn with_used(&self, used: ExactNanos, now: Tick) -> ExactNanos {
        self.pace.add(ExactNanos::at(now), used)
    }
}
