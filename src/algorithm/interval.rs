//! Exact time for the algorithms that have a rate.
//!
//! At L per W ns one unit is worth t = W/L ns, which is rarely a whole number. Every moment that such an
//! algorithm computes is a multiple of 1/L ns. So a pair (whole nanoseconds, parts of 1/L ns) holds it
//! exactly and nothing is rounded. One part is worth 1/W of a unit, whatever the limit is: a change of the
//! limit keeps the number of parts.

#[cfg(test)]
#[cfg(not(any(miri, tower_throttle_loom)))]
mod exhaustive;

use std::num::NonZeroU64;

use super::{Cost, Fields};
use crate::clock::{Tick, nanos};
use crate::quota::Quota;

/// A moment in nanoseconds and an exact fraction: when a bucket is full again, or a line free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExactNanos {
    pub(super) ns: u64,
    /// In parts of 1/L nanoseconds; below L.
    pub(super) fraction: u64,
}

/// The time that one unit is worth: W/L nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    // Non-zero, so a division cannot panic and the compiler drops it if the result is unused.
    pub(super) period: NonZeroU64,
    limit: NonZeroU64,
    /// W/L as a span, precomputed for a cost of 1.
    unit: ExactNanos,
    /// W/L if it is a whole number, as at most common rates; otherwise unused.
    whole: NonZeroU64,
}

impl ExactNanos {
    pub(super) const ZERO: Self = Self::from_nanos(0);
    pub(super) const NEVER: Self = Self::from_nanos(u64::MAX);

    pub(crate) const fn new(ns: u64, fraction: u64) -> Self {
        Self { ns, fraction }
    }

    #[inline]
    pub(super) const fn from_nanos(ns: u64) -> Self {
        Self { ns, fraction: 0 }
    }

    #[inline]
    pub(super) const fn from_tick(now: Tick) -> Self {
        Self::from_nanos(now.as_nanos())
    }

    /// The first whole nanosecond that is not before it.
    #[inline]
    pub(super) const fn ceil(self) -> u64 {
        self.ns.saturating_add((self.fraction > 0) as u64)
    }

    /// Whole nanoseconds from `now` until then, rounded up; zero if it is past.
    #[inline]
    pub(super) const fn nanos_since(self, now: Tick) -> u64 {
        self.ceil().saturating_sub(now.as_nanos())
    }
}

impl Interval {
    pub(super) const fn new(quota: &Quota) -> Self {
        let (Some(period), Some(limit)) = (
            NonZeroU64::new(quota.period_ns()),
            NonZeroU64::new(quota.limit()),
        ) else {
            panic!("the limit and the period of a quota are not zero");
        };
        let unit = ExactNanos::new(period.get() / limit.get(), period.get() % limit.get());
        Self {
            period,
            limit,
            whole: match NonZeroU64::new(unit.ns) {
                Some(whole) => whole,
                None => NonZeroU64::MIN,
            },
            unit,
        }
    }

    /// Lists the fields of the state of a bucket or of a line.
    pub(super) fn state_fields(&self, state: &mut ExactNanos, fields: &mut Fields<'_>) {
        fields.u64(&mut state.ns);
        state.ns = fields.moved.nanos(state.ns);
        fields.u64(&mut state.fraction);
        fields.require(state.fraction < self.limit.get());
    }

    /// The same interval if a unit is worth whole nanoseconds and `other` is zero, so that the compiler reduces what is
    /// done with moments without a fraction to plain arithmetic.
    #[inline]
    pub(super) fn whole(&self, other: u64) -> Option<Self> {
        (self.unit.fraction | other == 0).then(|| Self {
            period: self.whole,
            limit: NonZeroU64::MIN,
            unit: ExactNanos::from_nanos(self.unit.ns),
            whole: self.whole,
        })
    }

    /// The time that `cost` units are worth; `NEVER` if that overflows.
    #[inline]
    pub(super) const fn time_for(&self, cost: u64) -> ExactNanos {
        if cost == 1 {
            return self.unit;
        }
        match cost.checked_mul(self.period.get()) {
            Some(product) => ExactNanos {
                ns: product / self.limit.get(),
                fraction: product % self.limit.get(),
            },
            None => self.time_for_u128(cost),
        }
    }

    #[cold]
    const fn time_for_u128(&self, cost: u64) -> ExactNanos {
        self.time_of(cost as u128 * self.period.get() as u128)
    }

    /// The time of so many parts of a unit, of which a unit has as many as the period has nanoseconds.
    const fn time_of(&self, parts: u128) -> ExactNanos {
        let limit = self.limit.get() as u128;
        if parts / limit >= u64::MAX as u128 {
            return ExactNanos::NEVER;
        }
        ExactNanos::new(low_u64(parts / limit), low_u64(parts % limit))
    }

    /// How many whole units `span` is worth, as dividend and divisor, so that the caller may skip the
    /// division.
    #[inline]
    pub(super) const fn units_ratio(&self, span: ExactNanos) -> (u64, NonZeroU64) {
        if let Some(scaled) = span.ns.checked_mul(self.limit.get()) {
            if let Some(scaled) = scaled.checked_add(span.fraction) {
                return (scaled, self.period);
            }
        }
        (self.units_in_u128(span), NonZeroU64::MIN)
    }

    #[cold]
    const fn units_in_u128(&self, span: ExactNanos) -> u64 {
        let count = (span.ns as u128 * self.limit.get() as u128 + span.fraction as u128)
            / self.period.get() as u128;
        if count > u64::MAX as u128 {
            u64::MAX
        } else {
            low_u64(count)
        }
    }

    /// Corrects the state of a line whose request was taken `at` a moment that was rounded up from an
    /// `exact` one: the fraction is not lost.
    pub(super) fn correct(&self, state: &mut ExactNanos, exact: ExactNanos, at: Tick) {
        if *state != exact && exact.fraction > 0 && exact.ceil() == at.as_nanos() {
            let rounded = self.sub(ExactNanos::from_tick(at), exact);
            *state = self.sub(*state, rounded);
        }
    }

    /// `due + span`; saturates at `NEVER`.
    #[inline]
    pub(super) const fn add(&self, due: ExactNanos, span: ExactNanos) -> ExactNanos {
        let mut fraction = due.fraction + span.fraction;
        let mut carry = 0;
        if fraction >= self.limit.get() {
            fraction -= self.limit.get();
            carry = 1;
        }
        match due.ns.checked_add(span.ns) {
            Some(ns) if ns < u64::MAX => ExactNanos {
                ns: ns + carry,
                fraction,
            },
            _ => ExactNanos::NEVER,
        }
    }

    /// `due - span`, or zero.
    #[inline]
    pub(super) const fn sub(&self, due: ExactNanos, span: ExactNanos) -> ExactNanos {
        let (fraction, borrow) = if due.fraction >= span.fraction {
            (due.fraction - span.fraction, 0)
        } else {
            (due.fraction + self.limit.get() - span.fraction, 1)
        };
        match due.ns.checked_sub(span.ns) {
            Some(ns) if ns >= borrow => ExactNanos {
                ns: ns - borrow,
                fraction,
            },
            _ => ExactNanos::ZERO,
        }
    }

    /// `due` moved back by what is still taken of `cost`, but not past `unused`.
    ///
    /// Time has returned at most as much of the cost as has passed since: all of it if the bucket was
    /// unused before.
    pub(super) fn apply_refund(
        &self,
        due: ExactNanos,
        unused: ExactNanos,
        cost: Cost,
        now: Tick,
    ) -> ExactNanos {
        let since = ExactNanos::from_nanos(nanos(now.since(cost.at)));
        let taken = self.sub(self.time_for(cost.units), since);
        self.sub(due, taken).max(unused.min(due))
    }

    /// The span that is worth as many units at this interval as `span` is at the interval `from`: exact
    /// if the period is the same, and otherwise rounded up, so that a change of quota grants nothing.
    pub(super) fn convert(&self, span: ExactNanos, from: &Self) -> ExactNanos {
        let [old, new] = [from.period, self.period].map(|period| u128::from(period.get()));
        let parts = u128::from(span.ns) * u128::from(from.limit.get()) + u128::from(span.fraction);
        let parts = (parts / old)
            .checked_mul(new)
            .and_then(|whole| whole.checked_add((parts % old * new).div_ceil(old)));
        parts.map_or(ExactNanos::NEVER, |parts| self.time_of(parts))
    }
}

/// The low word of a number known to fit in it.
#[expect(
    clippy::cast_possible_truncation,
    reason = "callers have compared with u64::MAX or hold a remainder of a 64-bit division"
)]
pub(super) const fn low_u64(number: u128) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_of_more_parts_than_64_bits_is_converted() {
        let interval = Interval::new(&Quota::per_second(1_000_003));
        let (ns, fraction) = (1 << 50, 17);
        let span = ExactNanos { ns, fraction };
        assert_eq!(interval.convert(span, &interval), span);
    }
}
