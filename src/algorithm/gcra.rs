//! The algorithm of the governor crate.

use std::{cell::Cell, num::NonZeroU32, time::Duration};

use governor::state::{NotKeyed, StateStore};
use governor::{RateLimiter, clock::Clock, middleware::NoOpMiddleware, nanos::Nanos};

use super::bucket::Bucket;
use super::fields::Fields;
use super::{Algorithm, Capabilities, Cost, ExactNanos, GiveBack, Kernel, Level, Turns};
use crate::clock::Tick;
use crate::decision::{Decision, Verdict};
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
/// assert!(limiter.check(1).is_admitted());
/// assert!(limiter.check(1).is_denied());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gcra {
    quota: Quota,
    /// Decides; the bucket says the figures, and what a refund or a charge does.
    governor: governor::Quota,
    /// Of whole nanoseconds per cell, and a capacity of at most `u32::MAX`, the range of governor.
    bucket: Bucket,
}

/// The state during one decision.
struct OneState(Cell<Option<Nanos>>);

/// Governor counts from the first reading of its clock, which is zero here.
struct FixedClock(Cell<Nanos>, Nanos);

impl StateStore for OneState {
    type Key = NotKeyed;

    fn measure_and_replace<T, F, E>(&self, _key: &NotKeyed, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let (outcome, next) = decide(self.0.get())?;
        self.0.set(Some(next));
        Ok(outcome)
    }
}

impl Clock for FixedClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        self.0.replace(self.1)
    }
}

impl Gcra {
    /// Cells at the quota's rate, with its burst, or its limit if no burst is set.
    ///
    /// # Panics
    /// If the burst is above 2^32 - 1, the range of governor.
    #[track_caller]
    pub fn new(quota: Quota) -> Self {
        expect_valid(Self::try_new(quota))
    }

    pub(crate) fn try_new(quota: Quota) -> Result<Self, ConfigError> {
        let capacity = quota.capacity();
        let truncated = Duration::from_nanos((quota.period_ns() / quota.limit()).max(1));
        let burst = u32::try_from(capacity).ok().and_then(NonZeroU32::new);
        let rate = governor::Quota::with_period(truncated);
        let (Some(burst), Some(rate)) = (burst, rate) else {
            let allowed = "a number from 1 to 4294967295";
            return Err(ConfigError::out_of_range("burst", capacity, allowed));
        };
        let cells = Quota::try_per(1, truncated)?.try_burst(capacity)?;
        Ok(Self {
            governor: rate.allow_burst(burst),
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
        Capabilities::with_turns(Turns::Booked)
    }

    #[inline]
    fn fresh(&self, _now: Tick) -> ExactNanos {
        ExactNanos::ZERO
    }

    #[inline]
    fn decide(&self, state: &mut ExactNanos, now: Tick, cost: u64) -> Decision {
        // Above the capacity governor multiplies before it compares, and it adds to a moment: both may wrap.
        let is_in_range = cost <= self.bucket.capacity && state.ns <= Tick::MAX.as_nanos();
        let cells = u32::try_from(cost).ok().filter(|_| is_in_range);
        let Some(cells) = cells.and_then(NonZeroU32::new) else {
            return self.bucket.take(state, now, cost);
        };
        let slot = OneState(Cell::new((state.ns > 0).then(|| Nanos::new(state.ns))));
        let present = Nanos::new(now.as_nanos());
        let clock = FixedClock(Cell::new(Nanos::new(0)), present);
        let limiter: RateLimiter<_, _, _, NoOpMiddleware<Nanos>> =
            RateLimiter::new(self.governor, slot, clock);
        let (verdict, retry_after) = match limiter.check_n(cells) {
            Ok(Ok(())) => (Verdict::Admit, None),
            Ok(Err(not_until)) => {
                let wait = Nanos::from(not_until.wait_time_from(present));
                (Verdict::Deny, Some(wait.as_u64()))
            }
            Err(_) => (Verdict::Deny, None),
        };
        // Without a denial it is when the bucket will be unused; with one it stays.
        if let Some(due) = limiter.into_state_store().0.get() {
            *state = ExactNanos::from_tick(Tick::from_nanos(due.as_u64()));
        }
        let due = (*state).max(ExactNanos::from_tick(now));
        let end = self.bucket.tolerance_end(now);
        self.bucket.decision(verdict, due, end, now, retry_after)
    }

    fn refund(&self, state: &mut ExactNanos, now: Tick, cost: Cost, why: GiveBack) {
        self.bucket.refund(state, now, cost, why);
    }

    fn charge(&self, state: &mut ExactNanos, now: Tick, cost: u64) -> Duration {
        Duration::from_nanos(self.bucket.charge(state, now, cost))
    }

    fn rescale(&self, state: &mut ExactNanos, from: &Self, now: Tick) {
        *state = self.bucket.convert(*state, &from.bucket, (now, now));
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
                period: self.bucket.interval.period.get(),
                capacity: self.bucket.capacity,
                initial: 0,
            })
        });
    }

    fn state_fields(&self, state: &mut ExactNanos, fields: &mut Fields<'_>) {
        self.bucket.interval.state_fields(state, fields);
    }
}
