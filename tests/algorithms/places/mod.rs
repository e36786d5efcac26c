//! Every place of a state decides like a plain state.
//!
//! So the laws, which `laws` checks on plain states, hold everywhere. A place that is a backend is compared by the test
//! kit: a table in `laws`, two machines on one store, and in `tests/servers` each server. `TRACES=100000 cargo test --release
//! --all-features --test algorithms places` is the long run.

#[cfg(feature = "cas")]
mod machines;

use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, Cost, GiveBack, reserve};
use tower_throttle::clock::{Clock, Tick};
use tower_throttle::{Limiter, ManualClock, Quota};

use crate::random::{Random, seeds};
use crate::subjects::{random_subjects, subjects};

/// Compares a limiter with a plain state. `to` is what the limit may change to.
fn check_limiter<A: Algorithm>(from: A, to: &A, random: &mut Random) {
    let (clock, mut current) = (ManualClock::new(), from);
    clock.set(Tick::from_nanos(random.log_uniform(41)));
    let limiter = Limiter::new(current.clone()).with_clock(clock.clone());
    let mut state = current.fresh(clock.now());
    let period = u64::try_from(current.quota().period().as_nanos()).expect("short");
    for _ in 0..80 {
        clock.advance(Duration::from_nanos(match random.below(4) {
            0 => 0,
            1 => random.below(period / current.quota().limit() + 2),
            _ => random.below(period + 1),
        }));
        let (now, cost) = (clock.now(), 1 + random.below(3));
        match random.below(10) {
            0 => {
                let most = Duration::from_nanos(random.below(2 * period));
                let expected = reserve(&current, &mut state, now, cost, most);
                assert_eq!(limiter.reserve(cost, most), expected, "{current:?}");
            }
            2 => {
                limiter.refund(cost);
                let cost = Cost {
                    units: cost,
                    at: now,
                };
                current.refund(&mut state, now, cost, GiveBack::Refund);
            }
            3 => assert_eq!(
                limiter.charge(cost),
                current.charge(&mut state, now, cost),
                "{current:?}"
            ),
            4 if random.below(4) == 0 => {
                limiter.reset();
                state = current.fresh(now);
            }
            5 if random.below(4) == 0 => {
                limiter.set_algorithm(to.clone()).expect("valid");
                to.rescale(&mut state, &current, now);
                current = to.clone();
            }
            _ => {
                let expected = current.decide(&mut state, now, cost);
                assert_eq!(limiter.check(cost), expected, "{current:?}");
            }
        }
        assert_eq!(limiter.peek(1), current.peek(&state, now, 1), "{current:?}");
    }
}

#[test]
fn a_limiter_decides_like_a_plain_state() {
    for seed in seeds(60) {
        let mut random = Random::new(seed);
        let from = random_subjects(&mut random);
        let quota = from[2].algorithm.quota();
        let other = Quota::per(1 + random.below(2 * quota.limit()), quota.period());
        let to = subjects(
            other,
            1 + random.below(3 * quota.limit()),
            2 + random.below(10),
        );
        for (from, to) in from.into_iter().zip(to) {
            check_limiter(from.algorithm, &to.algorithm, &mut random);
        }
    }
}
