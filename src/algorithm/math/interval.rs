//! Exact time for the algorithms that have a rate.
//!
//! At L per W ns one unit is worth t = W/L ns, which is rarely a whole number. With W/L = num/den
//! in lowest terms every moment that such an algorithm computes is a multiple of 1/den ns. So a
//! pair (whole nanoseconds, fraction in units of 1/den) holds it exactly and nothing is rounded.

use std::num::NonZeroU64;

use super::{
    arithmetic::{gcd, low_u64},
    u256,
};
use crate::algorithm::{Cost, Fields};
use crate::clock::{Tick, nanos};
use crate::quota::Quota;

/// A moment in nanoseconds and an exact fraction: when a bucket is full again, or a line free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExactNanos {
    pub(in crate::algorithm) ns: u64,
    /// In units of 1/den; below `den`.
    pub(in crate::algorithm) fraction: u64,
}

/// The time that one unit is worth: `num / den` nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::algorithm) struct Interval {
    // Non-zero, so a division cannot panic and the compiler drops it if the result is unused.
    num: NonZeroU64,
    den: NonZeroU64,
    /// `num / den` as a span, precomputed for a cost of 1.
    unit: ExactNanos,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::algorithm) enum Rounding {
    Up,
    Down,
}

impl ExactNanos {
    pub(in crate::algorithm) const ZERO: Self = Self::from_nanos(0);
    pub(in crate::algorithm) const NEVER: Self = Self::from_nanos(u64::MAX);

    pub(crate) const fn new(ns: u64, fraction: u64) -> Self {
        Self { ns, fraction }
    }

    #[inline]
    pub(in crate::algorithm) const fn from_nanos(ns: u64) -> Self {
        Self { ns, fraction: 0 }
    }

    #[inline]
    pub(in crate::algorithm) const fn from_tick(now: Tick) -> Self {
        Self::from_nanos(now.as_nanos())
    }

    /// Drops a fraction that is known to be zero, so that the compiler can simplify.
    #[inline]
    pub(in crate::algorithm) const fn trunc(self) -> Self {
        Self::from_nanos(self.ns)
    }

    /// The first whole nanosecond that is not before it.
    #[inline]
    pub(in crate::algorithm) const fn ceil(self) -> u64 {
        self.ns.saturating_add((self.fraction > 0) as u64)
    }

    /// Whole nanoseconds from `now` until then, rounded up; zero if it is past.
    #[inline]
    pub(in crate::algorithm) const fn nanos_since(self, now: Tick) -> u64 {
        self.ceil().saturating_sub(now.as_nanos())
    }
}

impl Interval {
    pub(in crate::algorithm) const fn new(quota: &Quota) -> Self {
        let (period, limit) = (quota.period_ns(), quota.limit());
        let common = low_u64(gcd(period as u128, limit as u128));
        let (Some(num), Some(den)) = (
            NonZeroU64::new(period / common),
            NonZeroU64::new(limit / common),
        ) else {
            panic!("the limit and the period of a quota are not zero");
        };
        Self {
            num,
            den,
            unit: ExactNanos::new(num.get() / den.get(), num.get() % den.get()),
        }
    }

    /// Lists the fields of the state of a bucket or of a line.
    pub(in crate::algorithm) fn state_fields(
        &self,
        state: &mut ExactNanos,
        fields: &mut Fields<'_>,
    ) {
        fields.u64(&mut state.ns);
        if !self.is_whole() {
            fields.u64(&mut state.fraction);
            fields.require(state.fraction < self.den());
        }
    }

    /// Whether a unit is worth whole nanoseconds, as at most common rates.
    #[inline]
    pub(in crate::algorithm) const fn is_whole(&self) -> bool {
        self.den.get() == 1
    }

    /// The same interval if it is known to be whole, so that the compiler can simplify.
    #[inline]
    pub(in crate::algorithm) const fn trunc(&self) -> Self {
        Self {
            num: self.num,
            den: NonZeroU64::MIN,
            unit: self.unit.trunc(),
        }
    }

    pub(in crate::algorithm) const fn num(&self) -> u64 {
        self.num.get()
    }

    pub(in crate::algorithm) const fn den(&self) -> u64 {
        self.den.get()
    }

    /// The time that `cost` units are worth; `NEVER` if that overflows.
    #[inline]
    pub(in crate::algorithm) const fn time_for(&self, cost: u64) -> ExactNanos {
        if cost == 1 {
            return self.unit;
        }
        match cost.checked_mul(self.num.get()) {
            Some(product) => ExactNanos {
                ns: product / self.den.get(),
                fraction: product % self.den.get(),
            },
            None => self.time_for_u128(cost),
        }
    }

    #[cold]
    const fn time_for_u128(&self, cost: u64) -> ExactNanos {
        let product = cost as u128 * self.num.get() as u128;
        let ns = product / self.den.get() as u128;
        if ns >= u64::MAX as u128 {
            return ExactNanos::NEVER;
        }
        ExactNanos {
            ns: low_u64(ns),
            fraction: low_u64(product % self.den.get() as u128),
        }
    }

    /// How many whole units `span` is worth.
    #[inline]
    pub(in crate::algorithm) const fn units_in(&self, span: ExactNanos) -> u64 {
        let (dividend, divisor) = self.units_ratio(span);
        dividend / divisor.get()
    }

    /// [`units_in`](Self::units_in) as dividend and divisor, so that the caller may skip the
    /// division.
    #[inline]
    pub(in crate::algorithm) const fn units_ratio(&self, span: ExactNanos) -> (u64, NonZeroU64) {
        if let Some(scaled) = span.ns.checked_mul(self.den.get()) {
            if let Some(scaled) = scaled.checked_add(span.fraction) {
                return (scaled, self.num);
            }
        }
        (self.units_in_u128(span), NonZeroU64::MIN)
    }

    #[cold]
    const fn units_in_u128(&self, span: ExactNanos) -> u64 {
        // 64 bits times 63 bits, plus 63 bits.
        let count = (span.ns as u128 * self.den.get() as u128 + span.fraction as u128)
            / self.num.get() as u128;
        if count > u64::MAX as u128 {
            u64::MAX
        } else {
            low_u64(count)
        }
    }

    /// `due + span`; saturates at `NEVER`.
    #[inline]
    pub(in crate::algorithm) const fn add(&self, due: ExactNanos, span: ExactNanos) -> ExactNanos {
        // Both fractions are below 2^63.
        let mut fraction = due.fraction + span.fraction;
        let mut carry = 0;
        if fraction >= self.den.get() {
            fraction -= self.den.get();
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
    pub(in crate::algorithm) const fn sub(&self, due: ExactNanos, span: ExactNanos) -> ExactNanos {
        let (fraction, borrow) = if due.fraction >= span.fraction {
            (due.fraction - span.fraction, 0)
        } else {
            (due.fraction + self.den.get() - span.fraction, 1)
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
    pub(in crate::algorithm) fn apply_refund(
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

    /// The span that holds as many units at this interval as `span` does at the interval `from`,
    /// times `more / less`, in whole fractions. `rounding` is chosen so that a change of quota
    /// grants nothing extra.
    pub(in crate::algorithm) fn convert_units(
        &self,
        span: ExactNanos,
        from: &Self,
        (more, less): (u64, u64),
        rounding: Rounding,
    ) -> ExactNanos {
        // span.parts / from.num units, each worth self.num parts.
        let parts = u128::from(span.ns) * u128::from(from.den.get()) + u128::from(span.fraction);
        let numerator = [parts, u128::from(self.num.get()), u128::from(more)];
        let denominator = [u128::from(from.num.get()), u128::from(less)];
        let parts = match rounding {
            Rounding::Up => u256::ceil_ratio(&numerator, &denominator),
            Rounding::Down => u256::floor_ratio(&numerator, &denominator),
        };
        let den = u128::from(self.den.get());
        match parts {
            Some(parts) if parts / den < u128::from(u64::MAX) => ExactNanos {
                ns: low_u64(parts / den),
                fraction: low_u64(parts % den),
            },
            _ => ExactNanos::NEVER,
        }
    }

    /// `due` in fractions of this interval, rounded up.
    pub(in crate::algorithm) fn convert_fraction(
        &self,
        due: ExactNanos,
        from: &Self,
    ) -> ExactNanos {
        let parts = (u128::from(due.fraction) * u128::from(self.den.get()))
            .div_ceil(u128::from(from.den.get()));
        let fraction = ExactNanos {
            ns: low_u64(parts / u128::from(self.den.get())),
            fraction: low_u64(parts % u128::from(self.den.get())),
        };
        self.add(due.trunc(), fraction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_of_more_parts_than_64_bits_is_converted() {
        let interval = Interval::new(&Quota::per_second(1_000_003));
        let (ns, fraction) = (1 << 50, 17);
        let span = ExactNanos { ns, fraction };
        for rounding in [Rounding::Up, Rounding::Down] {
            let same = interval.convert_units(span, &interval, (1, 1), rounding);
            assert_eq!(same, span);
        }
    }

    #[test]
    fn a_moment_with_a_fraction_is_over_at_the_next_nanosecond() {
        let moment = |fraction| ExactNanos { ns: 5, fraction };
        assert_eq!((moment(0).ceil(), moment(1).ceil()), (5, 6));
    }
}
