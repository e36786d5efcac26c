//! The exact time between two units, in numbers that a script can represent.

use super::params::{MAX_EXACT, too_large, value_header};
use super::script::Args;
use crate::algorithm::ExactNanos;
use crate::error::ConfigError;
use crate::quota::Quota;

/// The time of one unit: num/den nanoseconds, the period and the limit. A microsecond has 1000 * den parts.
#[derive(Clone, Copy)]
pub(super) struct Interval {
    num: u64,
    den: u64,
}

impl Interval {
    pub(super) const fn new(quota: &Quota) -> Self {
        Self {
            num: quota.period_ns(),
            den: quota.limit(),
        }
    }

    #[cfg(feature = "governor")]
    pub(super) const fn from_nanos(ns: u64) -> Self {
        Self { num: ns, den: 1 }
    }

    /// As [`new`](Self::new), if a script can represent it.
    pub(super) fn try_new(quota: &Quota) -> Result<Self, ConfigError> {
        let interval = Self::new(quota);
        if interval.den > MAX_EXACT / 1_000 {
            return Err(too_large("limit", quota.limit()));
        }
        Ok(interval)
    }

    const fn parts_per_us(&self) -> u64 {
        1_000 * self.den
    }

    /// The time of `units`, in parts.
    pub(super) fn parts_for_units(&self, units: u64) -> u128 {
        u128::from(units) * u128::from(self.num)
    }

    pub(super) fn parts_for_ns(&self, ns: u64) -> u128 {
        u128::from(ns) * u128::from(self.den)
    }

    /// Parts as microseconds and parts; saturates at `MAX_EXACT` microseconds.
    pub(super) fn to_micros(self, parts: u128) -> (u64, u64) {
        let whole = u128::from(self.parts_per_us());
        let fits = |number: u128| {
            u64::try_from(number)
                .ok()
                .filter(|number| *number <= MAX_EXACT)
        };
        match (fits(parts / whole), fits(parts % whole)) {
            (Some(us), Some(part)) => (us, part),
            _ => (MAX_EXACT, 0),
        }
    }

    pub(super) fn to_exact_nanos(self, us: u64, part: u64) -> ExactNanos {
        ExactNanos::new(
            us.saturating_mul(1_000).saturating_add(part / self.den),
            part % self.den,
        )
    }

    /// A header with the interval and a number of units, which a later quota needs to know.
    pub(super) fn value_header(&self, tag: char, units: u64) -> String {
        let parts = self.parts_per_us();
        value_header(tag, &[self.den, self.num / parts, self.num % parts, units])
    }

    /// The parameters that lua/bucket.lua reads. A new key has used `initial_used`, and no key is
    /// forgotten earlier than `min_ttl_us` after it is unused.
    pub(super) fn bucket_params(
        self,
        capacity: u64,
        initial_used: u64,
        min_ttl_us: u64,
    ) -> [u64; 6] {
        let depth = self.to_micros(self.parts_for_units(capacity));
        let used = self.to_micros(self.parts_for_units(initial_used));
        let parts = self.parts_per_us();
        [parts, depth.0, depth.1, used.0, used.1, min_ttl_us]
    }

    /// The arguments that lua/bucket.lua reads: the span of a cost, the latest moment that admits it, if there is
    /// one, and the lead.
    pub(super) fn bucket_args(self, span: u128, bound: Option<u128>, lead: u128) -> Args {
        let [span, lead] = [span, lead].map(|parts| self.to_micros(parts));
        let bound = self.bound(bound);
        Args::new([span.0, span.1, bound.0, bound.1, lead.0, lead.1])
    }

    /// The latest moment that admits a cost, after now.
    pub(super) fn bound(self, bound: Option<u128>) -> (u64, u64) {
        bound.map_or((Args::NEVER, 0), |bound| self.to_micros(bound))
    }
}
