//! Compares the library with the oracle in random traces.

use std::thread;
use std::time::Duration;

use test_support::wait::at_once;
use tower_throttle::algorithm::{Algorithm, AnyAlgorithm, Cost, GiveBack};
use tower_throttle::clock::Clock;
use tower_throttle::testkit::check_backend;
use tower_throttle::{
    All, FixedWindow, LeakyBucket, Local, Lockout, ManualClock, SlidingGrid, SlidingLog,
    SlidingWindow, TokenBucket, WarmUp,
};

use crate::at;
use crate::calendar::Windows;
use crate::failures::Blocks;
use crate::oracle::{Kind, Naive, Rate};
use crate::random::{Random, seeds};

fn span(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}

/// The library's algorithm of a kind.
fn algorithm(kind: Kind, rate: Rate) -> AnyAlgorithm {
    let quota = kind.quota(rate);
    match kind {
        Kind::FixedWindow { offset } => {
            AnyAlgorithm::new(FixedWindow::new(quota).offset(span(offset)))
        }
        Kind::AnchoredWindow => AnyAlgorithm::new(FixedWindow::new(quota).anchored()),
        Kind::SlidingLog => AnyAlgorithm::new(SlidingLog::new(quota)),
        Kind::SlidingWindow { offset } => {
            AnyAlgorithm::new(SlidingWindow::new(quota).offset(span(offset)))
        }
        Kind::SlidingGrid {
            cells,
            strict,
            offset,
        } => {
            let cells = usize::try_from(cells).expect("few cells");
            let grid = SlidingGrid::new(quota).cells(cells).offset(span(offset));
            AnyAlgorithm::new(if strict { grid.strict() } else { grid })
        }
        Kind::TokenBucket { initial } => {
            AnyAlgorithm::new(TokenBucket::new(quota).initial(initial))
        }
        Kind::LeakyMeter => AnyAlgorithm::new(LeakyBucket::new(quota)),
        Kind::Lockout(Blocks {
            block,
            max_block,
            forget,
            ..
        }) => AnyAlgorithm::new(
            Lockout::new(quota)
                .block(span(block))
                .max_block(span(max_block))
                .forget(span(forget)),
        ),
        Kind::WarmUp { over, factor } => {
            AnyAlgorithm::new(WarmUp::new(quota, span(over)).cold_factor(factor))
        }
        Kind::Calendar(windows) => AnyAlgorithm::new(windows.algorithm(quota)),
    }
}

const KINDS: usize = 11;

/// A random policy of the kind `number`: 1 per day to 1e9 per second, with periods that the limit
/// divides and periods that it does not.
fn policy(number: usize, random: &mut Random) -> (Kind, Rate) {
    let mut rate = rate(random);
    let offset = *random.pick(&[0, 0, 1, 12_345_678]);
    let kind = match number {
        0 => Kind::FixedWindow { offset },
        1 => Kind::AnchoredWindow,
        2 => Kind::SlidingLog,
        3 => Kind::SlidingWindow { offset },
        4 | 5 => Kind::SlidingGrid {
            cells: match random.below(4) {
                0 => 1 + random.below(60),
                _ => 1 + random.below(12),
            },
            strict: number == 5,
            offset,
        },
        6 => Kind::TokenBucket {
            initial: random.below(rate.burst + 1),
        },
        7 => Kind::LeakyMeter,
        8 => {
            let block = 1 + random.below(2 * rate.period);
            Kind::Lockout(Blocks {
                block,
                max_block: block + random.below(6 * block),
                forget: 1 + random.below(8 * rate.period),
                ..Blocks::default()
            })
        }
        9 => Kind::WarmUp {
            over: 1 + random.below((20 * rate.period).min((1 << 60) / rate.limit)),
            factor: *random.pick(&[1, 2, 3, 10]),
        },
        _ => {
            let (windows, period) = Windows::random(random);
            rate.period = period;
            Kind::Calendar(windows)
        }
    };
    (kind, rate)
}

fn rate(random: &mut Random) -> Rate {
    let second = 1_000_000_000;
    let (limit, period) = match random.below(8) {
        0 => (1, 86_400 * second),
        1 => (second, second),
        2 => (999_999_937, second),
        3 => (777, second + 1),
        4 => (1 + random.below(20), 7_000_013),
        5 => (1 + random.log_uniform(30), 1 + random.log_uniform(45)),
        _ => (
            1 + random.below(30),
            *random.pick(&[10, 1_000, second, 60 * second]),
        ),
    };
    // A quota bounds the time that a burst is worth.
    let most = (u128::from(limit) << 58) / u128::from(period);
    let most = u64::try_from(most.clamp(1, 1 << 40)).expect("clamped");
    let burst = match random.below(3) {
        0 => limit,
        1 => 1 + random.below(5),
        _ => 1 + random.below(3 * limit),
    };
    Rate {
        limit,
        period,
        burst: burst.min(most),
    }
}

/// The library's algorithm for each policy, decided together.
fn all(naive: &Naive) -> All<Vec<AnyAlgorithm>> {
    let policies = naive.0.iter();
    All::new(policies.map(|(kind, rate)| algorithm(*kind, *rate)))
}

/// How a table differs from the models, in a random trace of all operations. `more` is charged that they do not count.
fn difference(mut naive: Naive, seed: u64, more: u64) -> Result<(), String> {
    for (kind, rate) in &mut naive.0 {
        if let Kind::TokenBucket { initial } = kind {
            // A key is new again at the first request after a reset.
            *initial = rate.burst;
        }
    }
    let (clock, mut random) = (ManualClock::new(), Random::new(seed));
    clock.set(at(match naive.0[0].0 {
        // The naive calendar begins in 2023, and ends long after a trace.
        Kind::Calendar(Windows { starts, .. }) => {
            starts[random.index(starts.len() / 3)] + random.log_uniform(51)
        }
        _ => random.log_uniform(60),
    }));
    let table = Local::new(all(&naive))
        .capacity(16)
        .with_clock(clock.clone());
    table.charge("a", more);
    let pass = async |span| {
        clock.advance(span);
        Some(clock.now())
    };
    let checking = check_backend(&table, &naive, ["a", "b"], pass, seed);
    let checked = at_once(checking).expect("a table decides at once");
    checked.map_err(|fault| format!("seed {seed}: {naive:?}: {fault}"))
}

/// Shows promises 10, 23, 26, 318.
#[test]
fn every_algorithm_agrees_with_the_oracle() {
    thread::scope(|scope| {
        for number in 0..KINDS {
            scope.spawn(move || {
                for seed in seeds(40) {
                    let naive = Naive(vec![policy(number, &mut Random::new(seed))]);
                    assert_eq!(difference(naive, seed, 0), Ok(()), "kind {number}");
                }
            });
        }
    });
}

/// Shows promise 16.
#[test]
fn combined_limits_do_what_all_oracles_do_and_denials_charge_none() {
    for seed in seeds(60) {
        let mut random = Random::new(seed);
        let policies = (0..=1 + random.below(3)).map(|_| {
            // Of similar quotas, or the costs of one would be years of another.
            let (kind, mut rate) = policy(random.index(KINDS - 1), &mut Random::new(seed));
            if !matches!(kind, Kind::WarmUp { .. }) {
                rate.limit += random.below(rate.limit);
            }
            (kind, rate)
        });
        assert_eq!(difference(Naive(policies.collect()), seed, 0), Ok(()));
    }
}

/// What a change of limits, periods and bursts keeps, and what a call returns that a table does not.
///
/// Shows promises 10, 16.
#[test]
fn a_change_of_quotas_keeps_what_the_oracle_says() {
    for seed in seeds(2_000) {
        let mut random = Random::new(seed);
        let mut now = random.log_uniform(60);
        let policies = (0..=random.below(2)).map(|_| {
            // A warm-up of another quota is cold, and the calendar has few periods.
            let number = random.index(KINDS - 2);
            policy(number, &mut random)
        });
        let mut naive = Naive(policies.collect());
        let mut limits = all(&naive);
        let (mut models, mut state) = (naive.fresh(at(now)), limits.fresh(at(now)));
        for _ in 0..20 {
            let Rate { limit, period, .. } = naive.0[0].1;
            now += [
                0,
                random.below(period / limit + 2),
                random.below(period + 1),
            ][random.index(3)];
            let (tick, cost) = (at(now), 1 + random.below(3));
            match random.below(8) {
                0 => assert_eq!(
                    limits.charge(&mut state, tick, cost),
                    naive.charge(&mut models, tick, cost),
                    "seed {seed}: {naive:?}"
                ),
                2 => {
                    let at = at(now + random.below(period));
                    let cost = Cost { units: cost, at };
                    limits.refund(&mut state, tick, cost, GiveBack::Refund);
                    naive.refund(&mut models, tick, cost, GiveBack::Refund);
                }
                3 => {
                    let mut next = naive.clone();
                    next.0
                        .iter_mut()
                        .for_each(|(_, old)| *old = other(*old, &mut random));
                    let rescaled = all(&next);
                    rescaled.rescale(&mut state, &limits, tick);
                    next.rescale(&mut models, &naive, tick);
                    (naive, limits) = (next, rescaled);
                }
                _ => {}
            }
            let decisions = [
                limits.decide(&mut state, tick, cost),
                naive.decide(&mut models, tick, cost),
            ];
            assert_eq!(decisions[0], decisions[1], "seed {seed}, {now}: {naive:?}");
        }
    }
}

/// Another rate, at which what was used is worth no longer than the time of a `Tick`.
fn other(old: Rate, random: &mut Random) -> Rate {
    match random.below(4) {
        0 => Rate {
            burst: (old.burst / 2).max(1),
            ..old
        },
        1 => Rate {
            limit: (old.limit / 2).max(1),
            ..old
        },
        2 => Rate {
            limit: old.limit + 1 + random.below(old.limit),
            ..old
        },
        _ => Rate {
            period: 1 + old.period / 2 + random.below(old.period),
            ..old
        },
    }
}

/// Checks that the comparison finds a difference of one unit.
///
/// Shows promises 1, 10.
#[test]
fn a_planted_difference_is_found_in_every_kind() {
    for number in 0..KINDS {
        let found = (0..50).any(|seed| {
            let naive = Naive(vec![policy(number, &mut Random::new(seed))]);
            difference(naive, seed, 1).is_err()
        });
        assert!(found, "kind {number}");
    }
}
