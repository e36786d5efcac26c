//! `Gcra` decides like governor's own limiter.

use std::{num::NonZeroU32, time::Duration};

use governor::{RateLimiter, clock::FakeRelativeClock};
use test_support::random::Random;
use tower_throttle::{Gcra, Limiter, ManualClock, Quota};

/// Shows promise 27.
#[test]
fn decisions_and_waits_equal_those_of_governor() {
    let (mut admitted, mut refused, mut oversized) = (0, 0, 0);
    for seed in 0..2_000 {
        let mut random = Random::new(seed);
        let limit = 1 + random.next() % 30;
        let period = Duration::from_nanos(1 + random.next() % 10_000_000_000);
        let burst = 1 + u32::try_from(random.next() % 20).expect("small");
        let interval = period.as_nanos() / u128::from(limit);
        let Some(rate) = u64::try_from(interval)
            .ok()
            .and_then(|ns| governor::Quota::with_period(Duration::from_nanos(ns)))
        else {
            continue;
        };
        let theirs = FakeRelativeClock::default();
        let burst_size = NonZeroU32::new(burst).expect("at least 1");
        let governor = RateLimiter::direct_with_clock(rate.allow_burst(burst_size), theirs.clone());
        let ours = ManualClock::new();
        let quota = Quota::per(limit, period).burst(u64::from(burst));
        let gcra = Limiter::new(Gcra::new(quota)).with_clock(ours.clone());
        // On average a cell comes back.
        let most = 2 * u64::try_from(period.as_nanos()).expect("short") / limit + 2;
        for _ in 0..100 {
            let gap = Duration::from_nanos(random.next() % most);
            theirs.advance(gap);
            ours.advance(gap);
            let cost = 1 + u32::try_from(random.next() % u64::from(burst + 1)).expect("small");
            let decision = gcra.check(u64::from(cost));
            let cells = NonZeroU32::new(cost).expect("at least 1");
            match governor.check_n(cells) {
                Ok(Ok(())) => {
                    admitted += 1;
                    assert!(decision.is_admitted(), "{decision:?}");
                }
                Ok(Err(not_until)) => {
                    use governor::clock::Clock as _;
                    let wait = not_until.wait_time_from(theirs.now());
                    assert_eq!(decision.retry_after, Some(wait));
                    assert!(decision.is_denied());
                    refused += 1;
                }
                Err(_) => {
                    oversized += 1;
                    assert!(decision.is_denied() && decision.retry_after.is_none());
                }
            }
        }
    }
    let seen = [admitted, refused, oversized];
    assert!(seen.iter().all(|count| *count > 5_000), "{seen:?}");
}

/// Shows promise 27.
#[test]
fn a_cost_that_overflows_in_governor_is_denied() {
    // 51,240,957 cells of six minutes overflow 64 bits of nanoseconds in governor's own check.
    let limiter = Limiter::new(Gcra::new(Quota::per_hour(10))).with_clock(ManualClock::new());
    let decision = limiter.check(51_240_957);
    assert!(decision.is_denied() && decision.retry_after.is_none());
    assert_eq!(limiter.peek(1).remaining(), 10);
}

/// Two quotas in turn, each for a thousandth of the time that a cell takes to come back.
///
/// Shows promise 17.
#[test]
fn a_change_of_quota_gives_no_cell_back_and_takes_none() {
    let clock = ManualClock::new();
    let quotas = [Quota::per_hour(10), Quota::per_hour(11).burst(10)];
    let limiter = Limiter::new(Gcra::new(quotas[0])).with_clock(clock.clone());
    let mut admitted = 0;
    for turn in 0..10_000 {
        clock.advance(Duration::from_millis(360));
        admitted += u32::from(limiter.check(1).is_admitted());
        let quota = quotas[(turn + 1) % 2];
        limiter.set_algorithm(Gcra::new(quota)).expect("a quota");
    }
    // The burst, and an hour of either rate.
    assert!((19..=21).contains(&admitted), "{admitted}");
}
