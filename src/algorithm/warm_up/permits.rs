//! Stored permits: the idle time that a warm-up has stored, and the cost of taking it.

use crate::algorithm::math::{Interval, floor_ratio, gcd, low_u64};

/// The figures of the store of permits, in units that make each of them a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredPermits {
    /// Units per permit.
    pub(crate) units_per_permit: u128,
    /// Units that come back per nanosecond.
    pub(crate) refill_rate: u128,
    pub(crate) threshold: u128,
    pub(crate) capacity: u128,
    /// How long from cold to warm, in nanoseconds.
    pub(crate) warm_up: u64,
    /// How many times slower than warm a cold key is.
    pub(crate) cold_factor: u64,
}

impl StoredPermits {
    /// The figures for an interval; `None` if they are out of range.
    pub(super) fn new(interval: &Interval, warm_up: u64, cold_factor: u64) -> Option<Self> {
        // num below 2^63, den below 2^63, warm_up at most 2^62, the factor at most 2^10. With their
        // product below 2^86 the square of a store, times a time, fits 256 bits.
        let (num, den) = (u128::from(interval.num()), u128::from(interval.den()));
        let (warm, factor) = (u128::from(warm_up), u128::from(cold_factor));
        let area = warm * den;
        if warm_up == 0 || warm_up > 1 << 62 || area >= 1 << 76 {
            return None;
        }
        let permit = 2 * num * (1 + factor);
        let refill = den * (5 + factor);
        let threshold = area * (1 + factor);
        let capacity = area * (5 + factor);
        let common = [refill, threshold, capacity].into_iter().fold(permit, gcd);
        Some(Self {
            units_per_permit: permit / common,
            refill_rate: refill / common,
            threshold: threshold / common,
            capacity: capacity / common,
            warm_up,
            cold_factor,
        })
    }

    /// The store after `idle` nanoseconds.
    #[inline]
    pub(super) fn refilled(&self, stored: u128, idle: u64) -> u128 {
        u128::from(idle)
            .saturating_mul(self.refill_rate)
            .saturating_add(stored)
            .min(self.capacity)
    }

    /// The store without the permits of `cost`.
    #[inline]
    pub(super) const fn spent(&self, stored: u128, cost: u64) -> u128 {
        stored.saturating_sub((cost as u128).saturating_mul(self.units_per_permit))
    }

    /// The area of the triangle over `stored`, in whole nanoseconds.
    #[inline]
    pub(super) fn cold_penalty(&self, stored: u128) -> u64 {
        let above = stored.saturating_sub(self.threshold);
        if above == 0 || self.cold_factor == 1 {
            return 0;
        }
        let most = self.capacity - self.threshold;
        let factor = u128::from(self.cold_factor);
        floor_ratio(
            &[(factor - 1) * u128::from(self.warm_up), above, above],
            &[factor + 1, most, most],
        )
        .map_or(u64::MAX, low_u64)
    }

    /// The store that is as full as `stored` is under the figures `from`.
    pub(super) fn same_share(&self, stored: u128, from: &Self) -> u128 {
        floor_ratio(&[stored, self.capacity], &[from.capacity])
            .unwrap_or(self.capacity)
            .min(self.capacity)
    }

    /// How many nanoseconds until the store is full.
    pub(super) fn nanos_until_full(&self, stored: u128) -> u64 {
        let nanos = (self.capacity - stored).div_ceil(self.refill_rate);
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}
