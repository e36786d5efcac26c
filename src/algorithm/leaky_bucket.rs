//! A steady outflow.

use std::time::Duration;

use super::fields::Fields;
use super::{Algorithm, Capabilities, Cost, ExactNanos, GiveBack, Kernel, Level, bucket::Bucket};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::quota::Quota;

/// A bucket that drains at L per W.
///
/// It mirrors [`TokenBucket`](crate::TokenBucket): a request of cost n adds n to the level and passes if the level stays
/// within B. Both decide alike.
///
/// With a burst of 1 it smooths traffic: requests of one key are t = W/L apart, and idle time earns no credit. In a
/// layer with a [queue](crate::RateLimitLayer::queue) they wait for that.
///
/// ```text
/// 2 per second, burst 1  0s        0.5s       1s        1.5s
/// requests               xxxx                             x
/// go, with a queue of 2  ✓         ✓          ✓           ✓
/// denied                    ✗      (two wait, the fourth finds the line full)
/// ```
///
#[cfg_attr(doc, doc = crate::picture::picture!(
    "algorithms/leaky_bucket.svg",
    "LeakyBucket and six kinds of traffic: a queue releases requests evenly, at the rate of the limit."
))]
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{LeakyBucket, Limiter, ManualClock, Quota};
///
/// let bucket = LeakyBucket::new(Quota::per_second(2).burst(1));
/// let limiter = Limiter::new(bucket).with_clock(ManualClock::new());
/// assert!(limiter.check(1).is_admitted());
/// assert_eq!(limiter.check(1).retry_after, Some(Duration::from_millis(500)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    quota: Quota,
    bucket: Bucket,
}

impl LeakyBucket {
    /// A bucket of the quota's [burst](Quota::burst), or of its limit if no burst is set.
    pub const fn new(quota: Quota) -> Self {
        Self {
            bucket: Bucket::new(&quota),
            quota,
        }
    }
}

impl Algorithm for LeakyBucket {
    type State = ExactNanos;

    fn quota(&self) -> Quota {
        self.quota
    }

    #[inline]
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            books_turns: true,
            ..Capabilities::ONE_LIMIT
        }
    }

    #[inline]
    fn fresh(&self, _now: Tick) -> ExactNanos {
        ExactNanos::ZERO
    }

    #[inline]
    fn decide(&self, state: &mut ExactNanos, now: Tick, cost: u64) -> Decision {
        self.bucket.take(state, now, cost)
    }

    fn take_turn(&self, state: &mut ExactNanos, at: Tick, cost: u64) -> Decision {
        self.bucket.take_turn(state, at, cost)
    }

    fn expected_wait(
        &self,
        state: &ExactNanos,
        at: Tick,
        ahead: u64,
        cost: u64,
    ) -> Option<Duration> {
        let wait = self.bucket.expected_wait(*state, at, ahead, cost)?;
        Some(Duration::from_nanos(wait))
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
        fields.tag(5);
        fields.quota(&mut self.quota);
        self.bucket = Bucket::new(&self.quota);
        fields.kernel(|_| Kernel::Level(Level::new(&self.quota, true)));
    }

    fn state_fields(&self, state: &mut ExactNanos, fields: &mut Fields<'_>) {
        self.bucket.interval.state_fields(state, fields);
    }
}

impl From<Quota> for LeakyBucket {
    fn from(quota: Quota) -> Self {
        Self::new(quota)
    }
}
