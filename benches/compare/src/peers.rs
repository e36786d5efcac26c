//! The limiters that rows compare: governor's and ours.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use governor::clock::DefaultClock;
use governor::state::{InMemoryState, NotKeyed, keyed::DefaultKeyedStateStore};
use governor::{Quota as GovernorQuota, RateLimiter};
use tower_throttle::{Local, Quota, TokenBucket, clock::MonotonicClock};

use crate::keys::Key;

pub(crate) type Keyed<K> = RateLimiter<K, DefaultKeyedStateStore<K>, DefaultClock>;
pub(crate) type Direct = RateLimiter<NotKeyed, InMemoryState, DefaultClock>;

/// A quota that is never used up, or one that is used up at once.
pub(crate) fn quota(admits: bool) -> Quota {
    if admits {
        Quota::per_second(1_000_000_000).burst(u64::from(u32::MAX))
    } else {
        Quota::per_day(1)
    }
}

fn governors(admits: bool) -> GovernorQuota {
    let quota = if admits {
        GovernorQuota::with_period(Duration::from_nanos(1)).expect("not zero")
    } else {
        GovernorQuota::with_period(Duration::from_secs(86_400)).expect("not zero")
    };
    quota.allow_burst(if admits {
        NonZeroU32::MAX
    } else {
        NonZeroU32::MIN
    })
}

pub(crate) fn keyed<K: Key>(admits: bool) -> Keyed<K> {
    RateLimiter::keyed(governors(admits))
}

pub(crate) fn direct(admits: bool) -> Direct {
    RateLimiter::direct(governors(admits))
}

/// A table with the default capacity, or with a capacity of `keys` if that is larger.
pub(crate) fn local(admits: bool, keys: u64) -> Local<TokenBucket> {
    let limiter = Local::new(TokenBucket::new(quota(admits)));
    if keys <= limiter.stats().capacity as u64 {
        return limiter;
    }
    limiter.capacity(keys as usize)
}

/// Waits until the clock has calibrated itself, so that no row measures that.
pub(crate) fn settle_clock() {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(80) {
        std::hint::black_box(tower_throttle::clock::Clock::now(&MonotonicClock));
    }
}
