//! Charges, and what a state keeps, at the edges of windows and of numbers.

#![expect(
    clippy::needless_pass_by_value,
    reason = "the algorithms are built where they are checked"
)]

use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, Cost, GiveBack};
use tower_throttle::clock::Tick;
use tower_throttle::{
    FixedWindow, LeakyBucket, Quota, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket, WarmUp,
};

const PERIOD: u64 = 1_000;
const LIMIT: u64 = 10;

fn at(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

fn quota() -> Quota {
    Quota::per(LIMIT, Duration::from_nanos(PERIOD))
}

#[test]
fn a_charge_of_zero_changes_no_decision_at_an_older_moment() {
    fn check<A: Algorithm>(algorithm: A) {
        let (older, newer) = (at(5 * PERIOD), at(20 * PERIOD));
        let mut state = algorithm.fresh(older);
        let _ = algorithm.charge(&mut state, older, LIMIT);
        let before = algorithm.peek(&state, older, 1);
        assert!(before.is_denied(), "{algorithm:?}: {before:?}");
        let _ = algorithm.charge(&mut state, newer, 0);
        let after = algorithm.peek(&state, older, 1);
        assert_eq!(after, before, "{algorithm:?}");
    }
    check(FixedWindow::new(quota()));
    check(FixedWindow::new(quota()).anchored());
    check(SlidingLog::new(quota()));
    check(SlidingWindow::new(quota()));
    check(TokenBucket::new(quota()));
    check(LeakyBucket::new(quota()));
    check(WarmUp::new(quota(), Duration::from_nanos(5 * PERIOD)));
    #[cfg(feature = "governor")]
    check(tower_throttle::Gcra::new(quota()));
}

#[test]
fn a_charge_up_to_the_limit_leaves_no_debt_at_an_older_moment() {
    fn check<A: Algorithm>(algorithm: A) {
        let (older, newer) = (at(5 * PERIOD), at(6 * PERIOD));
        let mut state = algorithm.fresh(newer);
        assert_eq!(algorithm.charge(&mut state, newer, 1), Duration::ZERO);
        let debt = algorithm.charge(&mut state, older, LIMIT - 1);
        assert_eq!(debt, Duration::ZERO, "{algorithm:?}");
        let debt = algorithm.charge(&mut state, older, 1);
        assert!(!debt.is_zero(), "{algorithm:?}");
    }
    check(FixedWindow::new(quota()));
    check(FixedWindow::new(quota()).anchored());
    check(SlidingLog::new(quota()));
    check(SlidingWindow::new(quota()));
    check(SlidingGrid::new(quota()));
    check(SlidingGrid::new(quota()).strict());
}

#[test]
fn charges_beyond_the_largest_number_keep_the_whole_limit_taken() {
    fn check<A: Algorithm>(algorithm: A) {
        let now = at(5 * PERIOD);
        let mut state = algorithm.fresh(now);
        for charge in [u64::MAX, (1 << 63) + 1, u64::MAX, u64::MAX] {
            let debt = algorithm.charge(&mut state, now, charge);
            assert!(!debt.is_zero(), "{algorithm:?}: {charge}");
            let decision = algorithm.peek(&state, now, 1);
            assert!(decision.is_denied(), "{algorithm:?}: {decision:?}");
        }
    }
    check(FixedWindow::new(quota()));
    check(SlidingLog::new(quota()));
    check(SlidingWindow::new(quota()));
    check(SlidingGrid::new(quota()));
    check(TokenBucket::new(quota()));
    check(LeakyBucket::new(quota()));
}

#[test]
fn a_refund_of_what_has_expired_changes_no_decision_at_an_older_moment() {
    fn check<A: Algorithm>(algorithm: A) {
        let (older, newer) = (at(5 * PERIOD), at(20 * PERIOD));
        let mut state = algorithm.fresh(older);
        assert!(algorithm.decide(&mut state, older, LIMIT).is_admitted());
        let before = algorithm.peek(&state, older, 1);
        algorithm.refund(&mut state, newer, Cost::new(LIMIT, older), GiveBack::Refund);
        assert_eq!(algorithm.peek(&state, older, 1), before, "{algorithm:?}");
    }
    check(FixedWindow::new(quota()));
    check(FixedWindow::new(quota()).anchored());
    check(SlidingLog::new(quota()));
    check(SlidingWindow::new(quota()));
    check(TokenBucket::new(quota()));
    check(LeakyBucket::new(quota()));
}

#[test]
fn nothing_is_used_after_a_refund_whatever_moment_asks() {
    fn check<A: Algorithm>(algorithm: A) {
        let (older, newer) = (at(5 * PERIOD), at(6 * PERIOD));
        let mut state = algorithm.fresh(newer);
        assert!(algorithm.decide(&mut state, newer, LIMIT).is_admitted());
        algorithm.refund(&mut state, newer, Cost::new(LIMIT, newer), GiveBack::Refund);
        let decision = algorithm.peek(&state, older, 0);
        assert_eq!(decision.remaining(), LIMIT, "{algorithm:?}");
        assert_eq!(decision.reset_after, Duration::ZERO, "{algorithm:?}");
    }
    check(FixedWindow::new(quota()));
    check(FixedWindow::new(quota()).anchored());
    check(SlidingLog::new(quota()));
    check(SlidingGrid::new(quota()));
    check(SlidingGrid::new(quota()).strict());
}

#[test]
fn a_window_is_forgettable_at_its_end() {
    let start = 5 * PERIOD + 1;
    let aligned = FixedWindow::new(quota());
    let anchored = aligned.anchored();
    for (algorithm, end, without_usage) in [
        (aligned, 6 * PERIOD, 0),
        // An anchored window without usage still says when the next one begins.
        (anchored, start + PERIOD, start + PERIOD),
    ] {
        let mut state = algorithm.fresh(at(start));
        assert_eq!(algorithm.forgettable_at(&state), at(0), "{algorithm:?}");
        assert!(algorithm.decide(&mut state, at(start), 3).is_admitted());
        assert_eq!(algorithm.forgettable_at(&state), at(end), "{algorithm:?}");
        algorithm.refund(
            &mut state,
            at(start),
            Cost::new(3, at(start)),
            GiveBack::Refund,
        );
        let forgettable = algorithm.forgettable_at(&state);
        assert_eq!(forgettable, at(without_usage), "{algorithm:?}");
    }
}

#[test]
fn a_change_at_the_start_of_an_anchored_window_counts_from_that_start() {
    let start = 5 * PERIOD + 1;
    let anchored = FixedWindow::new(quota()).anchored();
    let mut state = anchored.fresh(at(start));
    assert!(anchored.decide(&mut state, at(start), LIMIT).is_admitted());
    let aligned = FixedWindow::new(quota());
    aligned.rescale(&mut state, &anchored, at(start));
    let decision = aligned.peek(&state, at(start), 1);
    assert!(decision.is_denied(), "{decision:?}");
    assert_eq!(
        decision.reset_after,
        Duration::from_nanos(6 * PERIOD - start)
    );
}

#[test]
fn a_bucket_is_forgettable_when_it_is_full() {
    fn check<A: Algorithm>(algorithm: A, after: u64) {
        let now = at(5 * PERIOD);
        let mut state = algorithm.fresh(now);
        assert!(algorithm.decide(&mut state, now, 3).is_admitted());
        let forgettable = algorithm.forgettable_at(&state);
        assert_eq!(forgettable, at(5 * PERIOD + after), "{algorithm:?}");
    }
    check(TokenBucket::new(quota()), 3 * PERIOD / LIMIT);
    check(TokenBucket::new(quota()).initial(LIMIT), 3 * PERIOD / LIMIT);
    check(LeakyBucket::new(quota()), 3 * PERIOD / LIMIT);
    let mut state = TokenBucket::new(quota()).initial(4).fresh(at(0));
    let bucket = TokenBucket::new(quota()).initial(4);
    assert!(bucket.decide(&mut state, at(0), 3).is_admitted());
    // A forgotten key would have only four tokens again.
    assert_eq!(bucket.forgettable_at(&state), Tick::MAX);
}

#[test]
fn a_warm_up_is_forgettable_when_it_is_cold_again() {
    let warm_up = WarmUp::new(quota(), Duration::from_nanos(5 * PERIOD));
    let mut state = warm_up.fresh(at(0));
    assert!(warm_up.decide(&mut state, at(0), 1).is_admitted());
    let free = u64::try_from(warm_up.peek(&state, at(0), 0).reset_after.as_nanos()).expect("short");
    // A permit takes as long to store as a cold request takes less a warm one.
    let forgettable = warm_up.forgettable_at(&state);
    assert!(forgettable > at(free), "{forgettable:?}");
    assert!(forgettable < at(free + PERIOD), "{forgettable:?}");
    let mut fresh = warm_up.fresh(forgettable);
    let again = warm_up.decide(&mut state, forgettable, 1);
    assert_eq!(again, warm_up.decide(&mut fresh, forgettable, 1));
}

#[test]
fn a_reservation_of_zero_changes_no_decision_at_an_older_moment() {
    let warm_up = WarmUp::new(quota(), Duration::from_nanos(5 * PERIOD));
    let (older, newer) = (at(5 * PERIOD), at(20 * PERIOD));
    let mut state = warm_up.fresh(older);
    let _ = warm_up.charge(&mut state, older, LIMIT);
    let before = warm_up.peek(&state, older, 1);
    let turn = warm_up.reserve(&mut state, newer, 0, Duration::ZERO);
    assert!(turn.is_admitted(), "{turn:?}");
    assert_eq!(warm_up.peek(&state, older, 1), before);
}

/// All units at the least rate would take longer than there is time.
#[test]
fn a_debt_is_owed_after_a_change_as_long_as_ten_empty_buckets_take_to_fill() {
    let year = 365 * 86_400 * 1_000_000_000;
    let from = TokenBucket::new(Quota::per(8, Duration::from_nanos(PERIOD)));
    let to = TokenBucket::new(Quota::per(1, Duration::from_nanos(year)));
    let now = 5 * PERIOD;
    let mut state = from.fresh(at(now));
    let _ = from.charge(&mut state, at(now), 1_000);
    to.rescale(&mut state, &from, at(now));
    assert!(to.peek(&state, at(now + 10 * year - 1), 1).is_denied());
    assert!(to.peek(&state, at(now + 10 * year), 1).is_admitted());
}

#[test]
fn a_log_takes_16_bytes_per_moment() {
    let log = SlidingLog::new(quota());
    let bytes = |state: &_| log.report(state, at(0)).heap_bytes;
    let mut state = log.fresh(at(0));
    assert_eq!(bytes(&state), 0, "no moment");
    for moment in 0..4 {
        assert!(log.decide(&mut state, at(moment), 1).is_admitted());
        assert_eq!(bytes(&state), 4 * 16);
    }
    let most = log.capabilities().max_heap_bytes;
    assert!((64..=1_024).contains(&most), "{most} bytes");
}

#[test]
fn a_charge_beyond_the_capacity_owes_exactly_what_is_above_it() {
    fn check<A: Algorithm>(algorithm: A) {
        let now = at(5 * PERIOD);
        let mut state = algorithm.fresh(now);
        let debt = algorithm.charge(&mut state, now, LIMIT);
        assert_eq!(debt, Duration::ZERO, "{algorithm:?}");
        for units in [1, 2] {
            let debt = algorithm.charge(&mut state, now, 1);
            let owed = Duration::from_nanos(units * PERIOD / LIMIT);
            assert_eq!(debt, owed, "{algorithm:?}");
        }
    }
    check(TokenBucket::new(quota()));
    check(LeakyBucket::new(quota()));
    #[cfg(feature = "governor")]
    check(tower_throttle::Gcra::new(quota()));
}

/// A charge to a log of as many moments as its limit joins the newest one.
///
/// Shows promise 12.
#[test]
fn a_refund_of_a_cost_that_a_charge_joined_gives_back_older_costs_only() {
    let limited = |limit| SlidingLog::new(Quota::per(limit, Duration::from_nanos(PERIOD)));
    let used_up = |log: &SlidingLog, state: &_, now: u64| {
        let decision = log.peek(state, at(now), 1);
        decision.retry_after.map(|retry| at(now).plus(retry))
    };

    let log = limited(2);
    let mut state = log.fresh(at(0));
    for taken_at in [0, 100] {
        assert!(log.decide(&mut state, at(taken_at), 1).is_admitted());
    }
    let _ = log.charge(&mut state, at(300), 1);
    log.refund(&mut state, at(400), Cost::new(1, at(100)), GiveBack::Refund);
    // Two costs are kept. They count for 300 ns longer than if that of the beginning had been kept.
    assert_eq!(used_up(&log, &state, 400), Some(at(300 + PERIOD)));
    assert!(log.peek(&state, at(300 + PERIOD), 2).is_admitted());

    let log = limited(1);
    let mut state = log.fresh(at(0));
    assert!(log.decide(&mut state, at(100), 1).is_admitted());
    let _ = log.charge(&mut state, at(300), 1);
    let before = state.clone();
    log.refund(&mut state, at(400), Cost::new(1, at(100)), GiveBack::Refund);
    assert_eq!(state, before, "no older cost counts");
    log.refund(&mut state, at(400), Cost::new(1, at(300)), GiveBack::Refund);
    assert_eq!(used_up(&log, &state, 400), Some(at(300 + PERIOD)));
}
