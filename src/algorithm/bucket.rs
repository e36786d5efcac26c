//! The bucket that a token bucket empties and a leaky meter fills: they are mirrors of each other.

use super::pace::{Due, Pace};
use crate::clock::Tick;
use crate::decision::{Decision, Verdict};
use crate::quota::Quota;

/// A capacity under a rate. The state of a key is when its bucket is unused again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) pace: Pace,
    pub(super) capacity: u64,
    /// The time that the whole capacity is worth; at most 2^62 ns.
    pub(super) depth: Due,
}

impl Bucket {
    pub(super) const fn new(quota: &Quota) -> Self {
        let pace = Pace::new(quota);
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
    pub(super) fn take(&self, state: &mut Due, now: Tick, cost: u64, most: Due) -> Decision {
        if !self.pace.is_whole() {
            let (after, decision) = self.take_in_parts(*state, now, cost, most);
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
        bucket.take_exactly(state, now, cost, most.whole())
    }

    #[inline(never)]
    fn take_in_parts(&self, mut state: Due, now: Tick, cost: u64, most: Due) -> (Due, Decision) {
        let decision = self.take_exactly(&mut state, now, cost, most);
        (state, decision)
    }

    #[expect(clippy::inline_always, reason = "as for `take`")]
    #[inline(always)]
    fn take_exactly(&self, state: &mut Due, now: Tick, cost: u64, most: Due) -> Decision {
        let due = (*state).max(Due::at(now));
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
    const fn edge(&self, now: Tick) -> Due {
        // 2^63 + 2^62 fits.
        Due {
            ns: now.as_nanos() + self.depth.ns,
            part: self.depth.part,
        }
    }

    #[expect(clippy::inline_always, reason = "as for `take`")]
    #[inline(always)]
    fn answer(
        &self,
        verdict: Verdict,
        due: Due,
        edge: Due,
        now: Tick,
        retry_after: Option<u64>,
    ) -> Decision {
        let (dividend, divisor) = self.pace.ratio(self.pace.sub(edge, due));
        Decision::new(verdict, self.capacity, 0, retry_after, due.after(now))
            .with_quotient(dividend, divisor)
    }

    /// Takes `cost` even if it is not there; answers the time until what is owed has come back.
    pub(super) fn force(&self, state: &mut Due, now: Tick, cost: u64) -> u64 {
        let present = Due::at(now);
        if cost > 0 {
            *state = self.pace.add((*state).max(present), self.pace.span(cost));
        }
        self.pace.sub(*state, self.edge(now)).ceil()
    }

    /// The time that what is used of the capacity, or owed beyond it, is worth.
    pub(super) fn used(&self, state: Due, now: Tick) -> Due {
        let present = Due::at(now);
        self.pace.sub(state.max(present), present)
    }

    /// The state in which `used` is gone at `now`.
    pub(super) const fn using(&self, used: Due, now: Tick) -> Due {
        self.pace.add(Due::at(now), used)
    }
}
