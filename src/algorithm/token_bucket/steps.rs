//! Tokens that come back in steps.

use crate::algorithm::{Cost, ExactNanos, GiveBack, bucket::Bucket};
use crate::clock::Tick;
use crate::decision::{Decision, Verdict};
use crate::quota::Quota;

/// Tokens come back all at once after each step.
///
/// The state is the moment at which a step began, and in place of a fraction the tokens that were used by
/// then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Steps {
    /// The length of a step in nanoseconds; 0 for a steady refill.
    pub(super) length: u64,
    /// What comes back after each; 0 unless that is a whole number of tokens.
    tokens: u64,
    /// Whether steps begin at multiples of their length, or with the first use of a full bucket.
    pub(super) is_aligned: bool,
}

impl Steps {
    pub(super) const NONE: Self = Self {
        length: 0,
        tokens: 0,
        is_aligned: false,
    };

    pub(super) fn new(quota: &Quota, length: u64, is_aligned: bool) -> Self {
        Self {
            length,
            tokens: quota.whole_units_in(length).unwrap_or(0),
            is_aligned,
        }
    }

    /// `None` for a steady refill, and for settings that validation refuses.
    #[inline]
    pub(super) const fn active(&self) -> Option<&Self> {
        if self.tokens > 0 { Some(self) } else { None }
    }

    /// Whether states mean the same under both.
    pub(super) fn is_same_layout(&self, other: &Self) -> bool {
        (self.length, self.is_aligned) == (other.length, other.is_aligned)
    }

    /// The state of a bucket of which this was used at `now`.
    pub(super) const fn with_used(&self, used: u64, now: Tick) -> ExactNanos {
        ExactNanos::new(self.start(now), used)
    }

    /// When the step of a bucket begins that is first used at `now`.
    const fn start(&self, now: Tick) -> u64 {
        let now = now.as_nanos();
        if self.is_aligned {
            now - now % self.length
        } else {
            now
        }
    }

    /// The state after the steps that are over at `now`.
    pub(super) fn settled(&self, state: ExactNanos, now: Tick) -> ExactNanos {
        let steps = now.as_nanos().saturating_sub(state.ns) / self.length;
        let back = steps.saturating_mul(self.tokens);
        match state.fraction.checked_sub(back) {
            Some(used @ 1..) => ExactNanos::new(state.ns + steps * self.length, used),
            _ => ExactNanos::new(self.start(now).max(state.ns), 0),
        }
    }

    /// When this many tokens have come back.
    fn back_at(&self, settled: ExactNanos, tokens: u64) -> u64 {
        let steps = tokens.div_ceil(self.tokens);
        settled.ns.saturating_add(steps.saturating_mul(self.length))
    }

    fn wait_for(&self, settled: ExactNanos, tokens: u64, now: Tick) -> u64 {
        match tokens {
            0 => 0,
            tokens => self.back_at(settled, tokens).saturating_sub(now.as_nanos()),
        }
    }

    /// The tokens that are missing for a cost before and after which so many are used.
    fn missing(used: u64, after: u64, bucket: &Bucket) -> u64 {
        let missing = after.saturating_sub(bucket.capacity.saturating_add(bucket.debt));
        match bucket.debt {
            0 => missing,
            _ => missing.max(used.saturating_sub(bucket.capacity)),
        }
    }

    pub(super) fn take(
        &self,
        state: &mut ExactNanos,
        now: Tick,
        cost: u64,
        bucket: &Bucket,
    ) -> Decision {
        let settled = self.settled(*state, now);
        let (used, capacity) = (settled.fraction, bucket.capacity);
        let decided = |verdict, used: u64, retry_after| {
            let reset_after = self.wait_for(settled, used, now);
            let remaining = capacity.saturating_sub(used);
            Decision::new(verdict, capacity, remaining, retry_after, reset_after)
        };
        if cost == 0 {
            return decided(Verdict::Admit, used, None);
        }
        if cost > capacity.saturating_add(bucket.debt) {
            return decided(Verdict::Deny, used, None);
        }
        let after = used.saturating_add(cost);
        let missing = Self::missing(used, after, bucket);
        if missing == 0 {
            *state = ExactNanos::new(settled.ns, after);
            return decided(Verdict::Admit, after, None);
        }
        let retry_after = self.wait_for(settled, missing, now);
        decided(Verdict::Deny, used, Some(retry_after))
    }

    /// Gives back what is still taken of `cost`; a turn that is not used only if it is the last.
    pub(super) fn refund(
        &self,
        state: &mut ExactNanos,
        now: Tick,
        cost: Cost,
        why: GiveBack,
        bucket: &Bucket,
    ) {
        let is_last = |turn| {
            let after = self.settled(*state, turn).fraction;
            Self::missing(after.saturating_sub(cost.units), after, bucket) == 0
        };
        if !cost.is_due(now, why, is_last) {
            return;
        }
        let settled = self.settled(*state, now);
        let steps = settled
            .ns
            .saturating_sub(cost.at.as_nanos())
            .div_ceil(self.length);
        let taken = cost.units.saturating_sub(steps.saturating_mul(self.tokens));
        *state = ExactNanos::new(settled.ns, settled.fraction.saturating_sub(taken));
    }

    /// Returns the time until the debt is paid.
    pub(super) fn charge(
        &self,
        state: &mut ExactNanos,
        now: Tick,
        cost: u64,
        capacity: u64,
    ) -> u64 {
        let mut settled = self.settled(*state, now);
        if cost > 0 {
            settled.fraction = settled
                .fraction
                .saturating_add(cost)
                .min(Tick::MAX.as_nanos());
            *state = settled;
        }
        self.wait_for(settled, settled.fraction.saturating_sub(capacity), now)
    }

    /// The tokens that come back in `span` nanoseconds, rounded up.
    pub(super) const fn refilled_in(&self, span: u64) -> u64 {
        span.div_ceil(self.length).saturating_mul(self.tokens)
    }

    /// When a bucket of this state is full.
    pub(super) fn full_at(&self, state: ExactNanos) -> u64 {
        self.back_at(state, state.fraction)
    }
}
