//! The algorithm of the governor crate.

use std::time::Duration;

use super::bucket::Bucket;
use super::fields::Fields;
use super::{Algorithm, Capabilities, Cost, ExactNanos, GiveBack, Kernel, Level, Turns};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::{ConfigError, expect_valid};
use crate::quota::Quota;

/// The generic cell rate algorithm as the governor crate computes it.
///
/// For users who migrate from governor and need its decisions to the nanosecond. It works wherever
/// the other algorithms do. The arithmetic is governor's: the interval between cells is truncated
/// to whole nanoseconds, so a quota of 3 per second is one per 333,333,333 ns. [`TokenBucket`]
/// decides alike without truncating.
///
/// [`TokenBucket`]: crate::TokenBucket
///
#[cfg_attr(doc, doc = crate::picture::picture!(
    "algorithms/token_bucket.svg",
    "TokenBucket, and Gcra alike, and six kinds of traffic: a full bucket passes a burst at once, and then the rate is that of the limit."
))]
///
/// ```
/// use tower_throttle::{Gcra, Limiter, Quota};
///
/// let limiter = Limiter::new(Gcra::new(Quota::per_hour(2).burst(1)));
/// assert!(limiter.check().is_admitted());
/// assert!(limiter.check().is_denied());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gcra {
    quota: Quota,
    /// Of whole nanoseconds per cell, and a capacity of at most `u32::MAX`, the range of governor.
    bucket: Bucket,
}

impl Gcra {
    /// Cells at the quota's rate, with its burst, or its limit if no burst is set.
    ///
    /// # Panics
    /// If the burst is above 2^32 - 1, the range of governor. [`try_new`](Self::try_new) returns an
    /// error instead.
    #[track_caller]
    pub fn new(quota: Quota) -> Self {
        expect_valid(Self::try_new(quota))
    }

    /// [`new`](Self::new) for quotas from a configuration.
    ///
    /// # Errors
    /// If the burst is above 2^32 - 1, the range of governor.
    pub fn try_new(quota: Quota) -> Result<Self, ConfigError> {
        let burst = quota.capacity();
        if burst > u32::MAX.into() {
            let allowed = "a number from 1 to 4294967295";
            return Err(ConfigError::out_of_range("burst", burst, allowed));
        }
        let truncated = Duration::from_nanos((quota.period_ns() / quota.limit()).max(1));
        let cells = Quota::try_per(1, truncated)?.try_burst(burst)?;
        Ok(Self {
            bucket: Bucket::new(&cells),
            quota,
        })
    }
}

impl Algorithm for Gcra {
    type State = ExactNanos;

    fn quota(&self) -> Quota {
        self.quota
    }

    #[inline]
    fn capabilities(&self) -> Capabilities {
        Capabilities::ONE_LIMIT
    }

    #[inline]
    fn fresh(&self, _now: Tick) -> ExactNanos {
        ExactNanos::ZERO
    }

    #[inline]
    fn decide(&self, state: &mut ExactNanos, now: Tick, cost: u64) -> Decision {
        self.bucket.take(state, now, cost, ExactNanos::ZERO)
    }

    fn refund(&self, state: &mut ExactNanos, now: Tick, cost: Cost, _: GiveBack) {
        let (interval, unused) = (&self.bucket.interval, ExactNanos::from_tick(now));
        *state = interval.apply_refund(*state, unused, cost, now);
    }

    fn charge(&self, state: &mut ExactNanos, now: Tick, cost: u64) -> Duration {
        Duration::from_nanos(self.bucket.charge(state, now, cost))
    }

    fn rescale(&self, state: &mut ExactNanos, from: &Self, now: Tick) {
        *state = self.bucket.convert(*state, &from.bucket, now);
    }

    fn forgettable_at(&self, state: &ExactNanos) -> Tick {
        Tick::from_nanos(state.ceil())
    }

    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.tag(8);
        fields.quota(&mut self.quota);
        match Self::try_new(self.quota) {
            Ok(built) => *self = built,
            Err(error) => fields.refuse(error),
        }
        fields.kernel(|_| {
            Kernel::Level(Level {
                rate: 1,
                period: self.bucket.interval.period(),
                ..Level::new(&self.quota, Turns::Never)
            })
        });
    }

    fn state_fields(&self, state: &mut ExactNanos, fields: &mut Fields<'_>) {
        self.bucket.interval.state_fields(state, fields);
    }
}
