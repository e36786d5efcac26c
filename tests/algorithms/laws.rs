//! The laws in the documentation of `algorithm`, for every algorithm.

use std::time::Duration;

use tower_throttle::algorithm::Algorithm;
use tower_throttle::testkit::Law;
use tower_throttle::{Quota, SlidingGrid, SlidingLog, SlidingWindow, WarmUp, clock::Tick};

use crate::random::{Random, seeds};
use crate::subjects::{quota, random_subjects, subjects};

fn at(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

pub(crate) fn holds(law: Law, usual: u64) {
    for seed in seeds(usual) {
        for subject in random_subjects(&mut Random::new(seed)) {
            assert_eq!(subject.check(law, seed), Ok(()), "seed {seed}");
        }
    }
}

/// Shows promise 2.
#[test]
fn retry_after_is_exact_on_both_sides() {
    holds(Law::RetryAfter, 400);
}

/// Shows promise 2.
#[test]
fn reset_after_is_exact_on_both_sides() {
    holds(Law::ResetAfter, 200);
}

/// Shows promise 2.
#[test]
fn an_unused_key_resets_after_no_time_whatever_was_refunded() {
    holds(Law::UnusedKey, 200);
}

/// Shows promise 2.
#[test]
fn remaining_is_the_largest_cost_that_passes() {
    holds(Law::Remaining, 200);
}

/// From `forgettable_at` on a state decides like a fresh one, so dropping it changes no decision.
#[test]
fn a_forgettable_state_decides_like_a_fresh_one() {
    holds(Law::Forgettable, 200);
}

/// Shows promise 7.
#[test]
fn a_clock_that_steps_back_admits_no_more() {
    holds(Law::StepBack, 200);
}

/// Shows promise 7.
#[test]
fn no_operation_of_a_clock_that_steps_back_leaves_more() {
    holds(Law::StepBackOperations, 200);
}

/// Shows promise 1.
#[test]
fn denials_peeks_and_zero_costs_change_nothing() {
    holds(Law::Denial, 100);
}

/// Shows promise 10.
#[test]
fn the_polling_interval_does_not_change_what_is_admitted() {
    for (limit, period) in [
        (1, 60_000_000),
        (3, 1_000_000),
        (10, 3_600_000),
        (7, 7_000_013),
    ] {
        for subject in subjects(quota(limit, period), limit + 2, 10) {
            assert_eq!(subject.check(Law::Rounding, 0), Ok(()));
        }
    }
}

/// Its interval is truncated, so it admits slightly more than the bucket of its quota.
///
/// Shows promises 1, 2, 7.
#[cfg(feature = "governor")]
#[test]
fn gcra_keeps_the_laws() {
    use tower_throttle::testkit::{Promise, Subject, random_quota};
    let has_promise = |law: &Law| matches!(law, Law::Promise | Law::Refunds | Law::Rounding);
    for law in Law::ALL.into_iter().filter(|law| !has_promise(law)) {
        for seed in seeds(100) {
            let gcra = tower_throttle::Gcra::new(random_quota(seed));
            let subject = Subject::new("gcra", gcra, Promise::Bucket);
            assert_eq!(subject.check(law, seed), Ok(()), "seed {seed}: {gcra:?}");
        }
    }
}

/// Shows promise 21.
#[test]
fn a_sliding_window_counts_smooth_traffic_within_one_of_the_log() {
    for seed in seeds(50) {
        let mut random = Random::new(seed);
        let period = 1_000 + random.below(1_000_000);
        let gap = 1 + random.below(period / 4);
        // Evenly spaced requests below the limit, from a random moment on.
        let quota = quota(period, period);
        let (window, log) = (SlidingWindow::new(quota), SlidingLog::new(quota));
        let mut now = random.below(1 << 40);
        let mut states = (window.fresh(at(now)), log.fresh(at(now)));
        let start = now;
        while now < start + 6 * period {
            let counted = window.decide(&mut states.0, at(now), 1);
            let exact = log.decide(&mut states.1, at(now), 1);
            // Skips the first two windows, which have not seen the traffic for their whole length.
            if now > start + 2 * period {
                let apart = counted.remaining().abs_diff(exact.remaining());
                assert!(apart <= 1, "seed {seed}: {apart} apart at {now}");
            }
            now += gap;
        }
    }
}

#[test]
fn setters_give_the_same_policy_in_any_order() {
    let (before, quota) = (Quota::per_second(7), Quota::per_minute(300));
    let (over, wait) = (Duration::from_secs(20), Duration::from_millis(30));
    let expected = WarmUp::new(quota, over).cold_factor(5).max_cost(9);
    let warm = WarmUp::new(before, over).max_cost(9);
    let warm = warm.cold_factor(5).with_quota(quota);
    assert_eq!(warm.expect("a valid quota"), expected);

    let expected = SlidingGrid::new(quota).cells(7).strict().offset(wait);
    let grid = SlidingGrid::new(before).offset(wait).strict().cells(7);
    assert_eq!(grid.with_quota(quota).expect("a valid quota"), expected);
}
