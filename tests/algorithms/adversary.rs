//! The promises are tight: an adversary reaches the worst case that each one allows.

use std::time::Duration;

use tower_throttle::algorithm::Algorithm;
use tower_throttle::{LeakyBucket, Quota, TokenBucket, clock::Tick};

use crate::subjects::{Subject, quota, subjects};

const LIMIT: u64 = 100;
const PERIOD: u64 = 1_000;
const CELLS: u64 = 10;

/// Sends requests at each of `moments` until one is denied. Returns how many each moment admits.
fn greedy(subject: &Subject, moments: &[u64]) -> Vec<(u64, u64)> {
    let mut state = subject.algorithm.fresh(Tick::ZERO);
    let mut admissions = Vec::new();
    for now in moments {
        let mut admitted = 0;
        while subject
            .algorithm
            .decide(&mut state, Tick::from_nanos(*now), 1)
            .is_admitted()
        {
            admitted += 1;
        }
        admissions.push((*now, admitted));
    }
    admissions
}

/// The most admitted in any half-open interval of length `span`.
fn worst(admissions: &[(u64, u64)], span: u64) -> u64 {
    admissions
        .iter()
        .map(|(start, _)| {
            admissions
                .iter()
                .filter(|(at, _)| (*start..start + span).contains(at))
                .map(|(_, cost)| cost)
                .sum()
        })
        .max()
        .unwrap_or(0)
}

/// Tries a burst at every pair of moments on a grid, and just before each grid point.
fn search(name: &str, span: u64) -> u64 {
    let subject = subjects(quota(LIMIT, PERIOD), LIMIT, CELLS)
        .into_iter()
        .find(|subject| subject.name == name)
        .expect("a subject with that name");
    let moments: Vec<u64> = (0..3 * PERIOD)
        .step_by(100)
        .flat_map(|at| [at.saturating_sub(1), at, at + 50])
        .collect();
    let mut most = 0;
    for (index, first) in moments.iter().enumerate() {
        for second in &moments[index..] {
            let last = second + PERIOD - PERIOD / LIMIT + 1;
            let admissions = greedy(&subject, &[*first, *second, second + 1, last]);
            assert_eq!(subject.check_admissions(&admissions), Ok(()));
            most = most.max(worst(&admissions, span));
        }
    }
    most
}

/// Shows promise 19.
#[test]
fn a_fixed_window_admits_up_to_two_limits_at_a_boundary() {
    assert_eq!(search("fixed window", PERIOD), 2 * LIMIT);
    assert_eq!(
        search("anchored window", PERIOD),
        LIMIT,
        "two bursts open two windows"
    );
}

/// Shows promise 20.
#[test]
fn a_log_never_admits_more_than_the_limit() {
    assert_eq!(search("sliding log", PERIOD), LIMIT);
}

/// Shows promise 21.
#[test]
fn a_sliding_window_admits_up_to_two_limits() {
    // The first burst comes at the end of a window. From 99 % of the next window on, its weighted
    // count is below one.
    assert_eq!(search("sliding window", PERIOD), 2 * LIMIT);
}

/// Shows promise 22.
#[test]
fn a_grid_keeps_the_limit_except_for_one_cell_and_a_strict_grid_in_full() {
    assert_eq!(search("sliding grid", PERIOD - PERIOD / CELLS), LIMIT);
    assert_eq!(search("sliding grid", PERIOD), 2 * LIMIT);
    assert_eq!(search("strict grid", PERIOD), LIMIT);
}

/// Shows promise 23.
#[test]
fn a_bucket_admits_its_burst_and_what_it_earns() {
    for name in ["token bucket", "leaky meter"] {
        // t = 10 ns; a half-open period holds B + floor((W - 1) / t).
        assert_eq!(search(name, 1), LIMIT);
        let subject = subjects(quota(LIMIT, PERIOD), LIMIT, CELLS)
            .into_iter()
            .find(|subject| subject.name == name)
            .expect("a subject with that name");
        let always: Vec<u64> = (0..=PERIOD).collect();
        assert_eq!(worst(&greedy(&subject, &always), PERIOD), LIMIT + 99);
        assert_eq!(worst(&greedy(&subject, &always), PERIOD + 1), LIMIT + 100);
    }
}

/// Shows promise 23.
#[test]
fn a_bucket_whose_burst_and_rate_are_n_together_reaches_n_and_never_exceeds_it() {
    let period = Duration::from_nanos(PERIOD);
    for n in [2_u64, 3, 10, 99, 100] {
        for burst in [1, n.div_ceil(2), n - 1] {
            let quota = Quota::per(n - burst, period).burst(burst);
            let (token, leaky) = (TokenBucket::new(quota), LeakyBucket::new(quota));
            let always = 0..4 * PERIOD;
            let mut states = (token.fresh(Tick::ZERO), leaky.fresh(Tick::ZERO));
            let mut admissions = Vec::new();
            for now in always {
                let now = Tick::from_nanos(now);
                while token.decide(&mut states.0, now, 1).is_admitted() {
                    assert!(leaky.decide(&mut states.1, now, 1).is_admitted());
                    admissions.push((now.as_nanos(), 1));
                }
                assert!(leaky.peek(&states.1, now, 1).is_denied());
            }
            // A closed interval as long as the period is a half-open one that is 1 ns longer.
            let most = worst(&admissions, PERIOD + 1);
            // A bucket of one is full within a nanosecond and earns nothing until the next one.
            let reached = if burst > 1 || n <= 3 {
                n..=n
            } else {
                n / 2..=n
            };
            assert!(reached.contains(&most), "n {n}, burst {burst}: {most}");
        }
    }
}
