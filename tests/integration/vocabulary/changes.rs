//! What a state keeps when the quota changes.

use tower_throttle::algorithm::Algorithm;
use tower_throttle::{FixedWindow, LeakyBucket, Local, SlidingLog};

use super::*;

/// The remaining count after a cost of `used` and a change from `from` to `to`. It must be the same
/// for a `Limiter` and a `Local`.
fn remaining<A: Algorithm>(from: &A, used: u64, to: &A) -> u64 {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1_000_000));
    let limiter = Limiter::new(from.clone()).with_clock(clock.clone());
    let local = Local::new(from.clone())
        .capacity(10)
        .with_clock(clock.clone());
    assert!(limiter.check(used).is_admitted());
    assert!(local.check("key", used).is_admitted());
    limiter.set_algorithm(to.clone()).expect("valid");
    local.set_algorithm(to.clone()).expect("valid");
    let decision = limiter.check(0);
    assert_eq!(decision, local.check("key", 0), "{to:?}");
    decision.remaining()
}

/// Shows promise 17.
#[test]
fn what_was_used_stays_used_and_at_most_the_new_capacity_is() {
    // 7 of 10 are used.
    for (limit, left) in [(20, 13), (10, 3), (9, 2), (7, 0), (5, 0), (1, 0)] {
        let quota = Quota::per_hour;
        let (old, new) = (quota(10), quota(limit));
        let left_of = [
            remaining(&TokenBucket::new(old), 7, &TokenBucket::new(new)),
            remaining(&LeakyBucket::new(old), 7, &LeakyBucket::new(new)),
            remaining(&FixedWindow::new(old), 7, &FixedWindow::new(new)),
            remaining(&SlidingLog::new(old), 7, &SlidingLog::new(new)),
        ];
        assert_eq!(left_of, [left; 4], "10 to {limit}");
    }
}

/// What an empty bucket lacks at a large limit would take 10,000 days at a small one.
///
/// Shows promise 17.
#[test]
fn a_much_lower_limit_denies_no_longer_than_ten_of_its_empty_buckets() {
    const DAY: Duration = Duration::from_secs(86_400);
    let quota = |limit| Quota::per_day(limit);
    let clock = ManualClock::new();
    let limiter = Limiter::new(TokenBucket::new(quota(1_000_000))).with_clock(clock.clone());
    assert!(limiter.check(1_000_000).is_admitted());
    limiter.set_quota(quota(100)).expect("a quota");
    assert_eq!(limiter.peek(1).reset_after, 10 * DAY);
    clock.advance(9 * DAY);
    assert!(limiter.check(1).is_denied());
    clock.advance(DAY / 100);
    assert!(limiter.check(1).is_admitted());
}
