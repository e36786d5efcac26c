//! The promises are tight: an adversary reaches the worst case that each one allows.

use std::time::Duration;

use tower_throttle::algorithm::Algorithm;
use tower_throttle::{LeakyBucket, Quota, TokenBucket, clock::Tick};

const PERIOD: u64 = 1_000;

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
