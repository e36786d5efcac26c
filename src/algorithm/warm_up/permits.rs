//! Stored permits: the idle time that a warm-up has stored, and the cost of taking it.

use crate::algorithm::math::{Interval, gcd, low_u64};
use crate::quota::MAX_PERIOD_NS;

/// The figures of the store of permits, in units that make each of them a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredPermits {
    /// Units per permit.
    pub(crate) units_per_permit: u64,
    /// Units that come back per nanosecond.
    pub(crate) refill_rate: u64,
    pub(crate) threshold: u64,
    pub(crate) capacity: u64,
    /// How long from cold to warm, in nanoseconds.
    pub(crate) warm_up: u64,
    /// How many times slower than warm a cold key is.
    pub(crate) cold_factor: u64,
}

impl StoredPermits {
    /// The figures for an interval; `None` if they are out of range.
    pub(super) fn new(interval: &Interval, warm_up: u64, cold_factor: u64) -> Option<Self> {
        if warm_up == 0 || warm_up > MAX_PERIOD_NS {
            return None;
        }
        let (period, limit) = (u128::from(interval.period()), u128::from(interval.limit()));
        let (warm, factor) = (u128::from(warm_up), u128::from(cold_factor));
        // Below 2^59 * 2^53 * 2^11.
        let area = warm * limit;
        let figures = [
            2 * period * (1 + factor),
            limit * (5 + factor),
            area * (1 + factor),
            area * (5 + factor),
        ];
        let common = figures.into_iter().fold(0, gcd);
        let [permit, refill, threshold, capacity] =
            figures.map(|figure| u64::try_from(figure / common));
        let permits = Self {
            // One that is worth more than all that is stored takes all of it.
            units_per_permit: permit.unwrap_or(u64::MAX),
            refill_rate: refill.ok()?,
            threshold: threshold.ok()?,
            capacity: capacity.ok()?,
            warm_up,
            cold_factor,
        };
        // Then no product in `cold_penalty` exceeds 128 bits.
        let most = u128::from(permits.capacity - permits.threshold);
        let time = warm.saturating_mul(factor + 1);
        most.checked_mul(2 * time).map(|_| permits)
    }

    /// What is used of the store after `idle` nanoseconds.
    #[inline]
    pub(super) fn refilled(&self, used: u64, idle: u64) -> u64 {
        let back = idle.saturating_mul(self.refill_rate);
        used.min(self.capacity).saturating_sub(back)
    }

    /// What is used after the permits of `cost` are taken.
    #[inline]
    pub(super) const fn spent(&self, used: u64, cost: u64) -> u64 {
        used.saturating_add(cost.saturating_mul(self.units_per_permit))
    }

    /// What is used after they are put back. If they were more than can be counted, none are.
    pub(super) const fn put_back(&self, used: u64, cost: u64) -> u64 {
        match used {
            u64::MAX => u64::MAX,
            _ => used.saturating_sub(cost.saturating_mul(self.units_per_permit)),
        }
    }

    /// The area of the triangle over what is stored, in whole nanoseconds:
    /// `floor((f - 1) * w * above^2 / ((f + 1) * most^2))`, divided by `most` twice.
    #[inline]
    pub(super) fn cold_penalty(&self, used: u64) -> u64 {
        let most = self.capacity - self.threshold;
        let above = u128::from(most.saturating_sub(used));
        if above == 0 || self.cold_factor == 1 {
            return 0;
        }
        let most = u128::from(most);
        let (factor, warm_up) = (u128::from(self.cold_factor), u128::from(self.warm_up));
        let time = (factor - 1) * warm_up * above;
        let once = time / most * above + time % most * above / most;
        low_u64(once / ((factor + 1) * most))
    }

    /// How many nanoseconds until the store is full.
    pub(super) fn nanos_until_full(&self, used: u64) -> u64 {
        used.min(self.capacity).div_ceil(self.refill_rate)
    }
}
