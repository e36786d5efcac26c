//! A steady outflow.

use super::TokenBucket;

/// A bucket that drains at L per W.
///
/// A request of cost n adds n to the level and passes if the level stays within B. That is a [`TokenBucket`] seen from
/// the other side: what it says is used is the level. So both are one type.
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
pub type LeakyBucket = TokenBucket;
