//! The laws in the documentation of `algorithm`, for every algorithm.

use std::thread;
use std::time::Duration;

use tower_throttle::algorithm::Algorithm;
use tower_throttle::testkit::{Law, Promise};
use tower_throttle::{Quota, SlidingGrid, SlidingLog, SlidingWindow, WarmUp, clock::Tick};

use crate::random::{Random, seeds};
use crate::subjects::{quota, random_subjects, subjects};

fn at(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

/// The laws, and over how many seeds each is usually checked.
const LAWS: [(Law, u64); 12] = [
    (Law::Promise, 60),
    (Law::Refunds, 120),
    (Law::Undo, 100),
    (Law::Charge, 100),
    (Law::Denial, 100),
    (Law::RetryAfter, 400),
    (Law::ResetAfter, 200),
    (Law::UnusedKey, 200),
    (Law::Remaining, 200),
    (Law::StepBack, 200),
    (Law::StepBackOperations, 200),
    (Law::Forgettable, 200),
];

/// Shows promises 1, 2, 7, 12, 19, 20, 21, 22, 23, 25, 26, 29, 190, 318.
#[test]
fn every_algorithm_obeys_every_law() {
    thread::scope(|scope| {
        for (law, usual) in LAWS {
            scope.spawn(move || {
                for seed in seeds(usual) {
                    for subject in random_subjects(&mut Random::new(seed)) {
                        // A warm-up gives back a cold request at the price of a warm one, and it stays as warm as that
                        // has made it.
                        if law == Law::Undo && matches!(subject.promise, Promise::Paced(_)) {
                            continue;
                        }
                        assert_eq!(subject.check(law, seed), Ok(()), "seed {seed}");
                    }
                }
            });
        }
    });
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
    use tower_throttle::testkit::{Subject, random_quota};
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
