//! Bounds that every operation keeps, and the state after a denial.

use std::time::Duration;

use test_support::wait::at_once;
use tower_throttle::algorithm::{Algorithm, AnyAlgorithm, IntoAlgorithm, reserve};
use tower_throttle::clock::Tick;
use tower_throttle::{
    Decision, FixedWindow, LeakyBucket, Limiter, ManualClock, Quota, SlidingGrid, SlidingLog,
    SlidingWindow, TokenBucket, WarmUp,
};

const SECOND: Duration = Duration::from_secs(1);

fn limiter<I: IntoAlgorithm>(algorithm: I) -> (Limiter<I::Algorithm, ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    (Limiter::new(algorithm).with_clock(clock.clone()), clock)
}

/// Shows promise 5.
#[test]
fn a_cost_above_the_capacity_is_denied_by_every_operation() {
    let quota = Quota::per_second(10);
    let denied = |decision: &Decision| decision.is_denied() && decision.retry_after.is_none();
    for algorithm in [
        AnyAlgorithm::new(TokenBucket::new(quota)),
        AnyAlgorithm::new(LeakyBucket::new(quota)),
        AnyAlgorithm::new(FixedWindow::new(quota)),
        AnyAlgorithm::new(SlidingLog::new(quota)),
        AnyAlgorithm::new(SlidingWindow::new(quota)),
        AnyAlgorithm::new(SlidingGrid::new(quota)),
    ] {
        let (limiter, _) = limiter(algorithm.clone());
        for cost in [11, 1_000] {
            assert!(denied(&limiter.check(cost)), "{algorithm:?}");
            assert!(denied(&limiter.peek(cost)), "{algorithm:?}");
            assert!(limiter.check(cost).is_denied(), "{algorithm:?}");
            let decision = at_once(limiter.acquire(cost, 100 * SECOND));
            assert!(
                decision.is_some_and(|decision| denied(&decision)),
                "{algorithm:?}"
            );
            let mut state = algorithm.fresh(Tick::ZERO);
            let decision = reserve(&algorithm, &mut state, Tick::ZERO, cost, 100 * SECOND);
            assert!(denied(&decision), "{algorithm:?}");
        }
        assert!(
            limiter.check(10).is_admitted(),
            "nothing was taken: {algorithm:?}"
        );
    }
}

/// Shows promise 5.
#[test]
fn a_warm_up_admits_any_cost() {
    let warm_up = WarmUp::new(Quota::per_second(10), SECOND).cold_factor(1);
    let (checked, _) = limiter(warm_up);
    assert!(checked.check(1_000).is_admitted());
    let (acquired, _) = limiter(warm_up);
    let decision = at_once(acquired.acquire(1_000, Duration::ZERO));
    assert!(decision.is_some_and(|decision| decision.is_admitted()));
    assert_eq!(checked.peek(1), acquired.peek(1));
    // Later requests wait for the large one.
    assert_eq!(checked.check(1).retry_after, Some(SECOND * 100));
}

#[test]
fn a_request_that_would_wait_a_fraction_too_long_is_denied() {
    fn check<A: Algorithm>(line: &A) {
        // A third of a second, rounded down and up.
        for (max_wait, is_denied) in [(333_333_333, true), (333_333_334, false)] {
            let now = Tick::ZERO.plus(SECOND);
            let mut state = line.fresh(now);
            assert!(line.decide(&mut state, now, 1).is_admitted(), "{line:?}");
            let most = Duration::from_nanos(max_wait);
            let second = reserve(line, &mut state, now, 1, most);
            assert_eq!(second.is_denied(), is_denied, "{line:?}: {second:?}");
        }
    }
    let quota = Quota::per_second(3);
    let warm_up = WarmUp::new(quota, SECOND).cold_factor(1);
    check(&LeakyBucket::new(quota.burst(1)));
    check(&TokenBucket::new(quota.burst(1)));
    check(&warm_up);
}
