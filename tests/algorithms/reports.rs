//! What an algorithm reports about itself: alone, in a combination, as `AnyAlgorithm`, and with
//! another quota.

#![expect(
    clippy::needless_pass_by_value,
    reason = "the algorithms are built where they are checked"
)]

use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, AnyAlgorithm, Charge};
use tower_throttle::clock::Tick;
use tower_throttle::{
    All, FixedWindow, LeakyBucket, Quota, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket,
    WarmUp,
};

fn at(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

fn quota(limit: u64) -> Quota {
    Quota::per(limit, Duration::from_micros(1))
}

fn span(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}

#[test]
fn a_changed_quota_builds_what_the_constructor_builds() {
    fn check<A: Algorithm>(build: impl Fn(Quota) -> A) {
        let changed = build(quota(10)).with_quota(quota(7)).expect("valid");
        assert_eq!(format!("{changed:?}"), format!("{:?}", build(quota(7))));
    }
    check(FixedWindow::new);
    check(|quota| FixedWindow::new(quota).anchored());
    check(|quota| FixedWindow::new(quota).offset(span(300)));
    check(SlidingLog::new);
    check(|quota| SlidingWindow::new(quota).offset(span(300)));
    check(|quota| SlidingGrid::new(quota).cells(5).strict());
    check(|quota| TokenBucket::new(quota).initial(2).queue(5));
    check(|quota| TokenBucket::new(quota).queue(5).max_wait(span(300)));
    check(LeakyBucket::new);
    check(|quota| LeakyBucket::new(quota).queue(5).max_cost(3));
    check(|quota| LeakyBucket::new(quota).queue(5).max_wait(span(300)));
    check(|quota| LeakyBucket::new(quota).queue(5).charge_mode(Charge::Before));
    check(|quota| WarmUp::new(quota, span(5_000)).queue(5).max_cost(3));
    check(|quota| WarmUp::new(quota, span(5_000)).queue(5).max_wait(span(9)));
    check(|quota| All::new([TokenBucket::new(quota)]));
    #[cfg(feature = "governor")]
    check(tower_throttle::Gcra::new);
}

/// What the stores and the queue ask an algorithm.
fn report<A: Algorithm>(algorithm: &A, state: &A::State) -> String {
    format!(
        "{:?}",
        (
            algorithm.quota(),
            algorithm.capabilities().queue,
            algorithm.forgettable_at(state),
            algorithm.quotas(),
            algorithm.capabilities().limits,
            algorithm.peek(state, at(9_100), 1),
        )
    )
}

#[test]
fn any_algorithm_reports_what_the_algorithm_in_it_reports() {
    fn check<A: Algorithm + Into<AnyAlgorithm>>(algorithm: A) {
        let any = AnyAlgorithm::new(algorithm.clone());
        let mut state = algorithm.fresh(at(9_000));
        let mut any_state = any.fresh(at(9_000));
        assert_eq!(
            algorithm.decide(&mut state, at(9_000), 1),
            any.decide(&mut any_state, at(9_000), 1)
        );
        // The state of an `AnyAlgorithm` is in a box, and that of each part of a set too.
        if algorithm.capabilities().limits == 1 {
            let boxed = size_of::<A::State>();
            let heap = algorithm.report(&state, at(9_000)).heap_bytes;
            assert_eq!(
                any.report(&any_state, at(9_000)).heap_bytes,
                heap + boxed,
                "{algorithm:?}"
            );
            assert_eq!(
                any.capabilities().max_heap_bytes,
                algorithm.capabilities().max_heap_bytes + boxed,
                "{algorithm:?}"
            );
        }
        assert_eq!(report(&any, &any_state), report(&algorithm, &state));
    }
    check(FixedWindow::new(quota(10)));
    check(FixedWindow::new(quota(1 << 52)));
    check(SlidingLog::new(quota(10)));
    check(SlidingWindow::new(quota(10)));
    check(SlidingWindow::new(quota(1 << 40)));
    check(SlidingGrid::new(quota(10)).cells(20));
    check(TokenBucket::new(quota(7)));
    check(LeakyBucket::new(quota(10)).queue(5));
    check(WarmUp::new(quota(10), span(5_000)));
    check((TokenBucket::new(quota(10)), SlidingWindow::new(quota(4))));
    check(All::new([
        FixedWindow::new(quota(10)),
        FixedWindow::new(quota(20)),
        FixedWindow::new(quota(30)),
    ]));
}

#[test]
fn a_combination_has_the_quota_of_its_first_part() {
    let pair = (FixedWindow::new(quota(10)), TokenBucket::new(quota(7)));
    assert_eq!(pair.quota(), quota(10));
    assert_eq!((pair, SlidingLog::new(quota(3))).quota(), quota(10));
    let all = All::new([TokenBucket::new(quota(7)), TokenBucket::new(quota(10))]);
    assert_eq!(all.quota(), quota(7));
}

#[test]
fn a_tie_of_two_limits_reports_the_first() {
    fn limit<A: Algorithm>(algorithm: A, taken: u64, cost: u64) -> u64 {
        let mut state = algorithm.fresh(at(9_000));
        assert!(algorithm.decide(&mut state, at(9_000), taken).is_admitted());
        algorithm.peek(&state, at(9_000), cost).limit
    }
    let (small, large) = (quota(10), quota(20));
    // Both have as much room relative to their limits and reset at the same time.
    assert_eq!(
        limit((FixedWindow::new(small), FixedWindow::new(large)), 0, 0),
        10
    );
    assert_eq!(
        limit((FixedWindow::new(large), FixedWindow::new(small)), 0, 0),
        20
    );
    // Both deny until the same time.
    let (small, large) = (quota(10), Quota::per(11, span(1_000)));
    assert_eq!(
        limit((FixedWindow::new(small), FixedWindow::new(large)), 9, 3),
        10
    );
    assert_eq!(
        limit((FixedWindow::new(large), FixedWindow::new(small)), 9, 3),
        11
    );
}

#[test]
fn a_combination_allocates_what_its_parts_do_and_its_list() {
    fn bytes<A: Algorithm>(algorithm: &A) -> (usize, usize) {
        let mut state = algorithm.fresh(at(9_000));
        for moment in 9_000..9_005 {
            assert!(algorithm.decide(&mut state, at(moment), 1).is_admitted());
        }
        (
            algorithm.report(&state, at(9_005)).heap_bytes,
            algorithm.capabilities().max_heap_bytes,
        )
    }
    let log = SlidingLog::new(quota(10));
    let (heap, most) = bytes(&log);
    assert!(heap > 0 && most >= heap, "{heap} of {most} bytes");
    assert_eq!(bytes(&FixedWindow::new(quota(10))), (0, 0));
    assert_eq!(bytes(&(log, FixedWindow::new(quota(10)))), (heap, most));
    assert_eq!(bytes(&(log, log)), (2 * heap, 2 * most));
    let list = 2 * size_of::<<SlidingLog as Algorithm>::State>();
    assert_eq!(
        bytes(&All::new([log, log])),
        (2 * heap + list, 2 * most + list)
    );
    #[cfg(feature = "governor")]
    assert_eq!(bytes(&tower_throttle::Gcra::new(quota(10))), (0, 0));
}
