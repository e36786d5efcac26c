//! The laws in the documentation of `algorithm`, for every algorithm.

use std::ops::ControlFlow;
use std::thread;
use std::time::Duration;

use tower_throttle::algorithm::{self, Algorithm, Cost, GiveBack};
use tower_throttle::{SlidingLog, SlidingWindow, clock::Tick};

use crate::at;
use crate::random::{Random, seeds};
use crate::subjects::{Subject, quota, random_subjects};

/// Shows promises 1, 2, 7, 12, 19, 20, 21, 22, 23, 25, 26, 29, 190, 318.
#[test]
fn every_algorithm_obeys_every_law() {
    let all = seeds(60);
    let quarter = (all.end - all.start).div_ceil(4);
    thread::scope(|scope| {
        for from in [0, 1, 2, 3].map(|part| all.start + part * quarter) {
            let part = from..all.end.min(from + quarter);
            scope.spawn(move || {
                for seed in part {
                    for subject in random_subjects(&mut Random::new(seed)) {
                        assert_eq!(subject.check(seed), Ok(()));
                        let fault = leaves_more_in_the_past(&subject, seed);
                        assert_eq!(fault, None, "{}, seed {seed}", subject.name);
                        let fault = resets_while_unused(&subject, seed);
                        assert_eq!(fault, None, "{}, seed {seed}", subject.name);
                    }
                }
            });
        }
    });
}

/// The state of a key after some requests, and the newest moment.
fn used<A: Algorithm>(subject: &Subject<A>, random: &mut Random) -> (A::State, u64) {
    let mut now = random.log_uniform(41);
    let mut state = subject.algorithm.fresh(at(now));
    for _ in 0..random.below(40) {
        now += match random.below(3) {
            0 => 0,
            1 => random.below(subject.period / subject.limit + 2),
            _ => random.below(2 * subject.period),
        };
        let _ = subject
            .algorithm
            .decide(&mut state, at(now), random.below(4));
    }
    (state, now)
}

/// A key of which the whole limit is available waits for nothing, also after refunds and at moments older than the
/// state.
pub(crate) fn resets_while_unused<A: Algorithm>(subject: &Subject<A>, seed: u64) -> Option<String> {
    let mut random = Random::new(seed);
    let (mut state, mut now) = used(subject, &mut random);
    let mut taken = Vec::new();
    for _ in 0..4 {
        let cost = 1 + random.below(subject.limit.min(3));
        let decision = subject.algorithm.decide(&mut state, at(now), cost);
        if !decision.is_denied() {
            taken.push(Cost {
                units: cost,
                at: at(now),
            });
        }
        now += random.below(subject.period);
    }
    taken.into_iter().rev().find_map(|cost| {
        let older = at(now.saturating_sub(random.below(3 * subject.period)));
        let algorithm = &subject.algorithm;
        algorithm.refund(&mut state, older, cost, GiveBack::Refund);
        let decision = algorithm.peek(&state, older, 0);
        let unused = decision.remaining() == decision.limit;
        (unused != decision.reset_after.is_zero())
            .then(|| format!("after a refund of {cost:?} at {older:?}: {decision:?}"))
    })
}

/// An operation at a moment older than the state leaves no more than the same operation at the newest moment, and a
/// reservation has no turn until then that it has not at the newest. Not checked: a refund to a bucket, which may give
/// back of its cost what time has returned in between, and to a line, which has its whole length when it becomes idle.
pub(crate) fn leaves_more_in_the_past<A: Algorithm>(
    subject: &Subject<A>,
    seed: u64,
) -> Option<String> {
    let mut random = Random::new(seed);
    let (mut state, now) = used(subject, &mut random);
    let (algorithm, period) = (&subject.algorithm, subject.period);
    let _ = algorithm.decide(&mut state, at(now), 1);
    let older = now.saturating_sub(random.log_uniform(42));
    let cost = 1 + random.below(algorithm.quota().capacity().min(20));
    let taken_at = older.saturating_sub(random.below(2 * period));
    let wait = Duration::from_nanos(random.below(2 * period));
    let after = |moment: u64, change: &dyn Fn(&mut A::State, Tick)| {
        let mut state = state.clone();
        change(&mut state, at(moment));
        algorithm.peek(&state, at(now), 0).remaining()
    };
    let worse = |operation: &str, change: &dyn Fn(&mut A::State, Tick)| {
        let (then, newest) = (after(older, change), after(now, change));
        let text = format!("{operation} of {cost} at {older} leaves {then}, at {now} {newest}");
        if then > newest {
            ControlFlow::Break(text)
        } else {
            ControlFlow::Continue(())
        }
    };
    let charged = worse("a charge", &|state, moment| {
        algorithm.charge(state, moment, cost);
    });
    if let ControlFlow::Break(fault) = charged {
        return Some(fault);
    }
    let returns = ["bucket", "meter", "warm-up", "steps", "debt"];
    if !returns.iter().any(|name| subject.name.contains(name)) {
        let taken = Cost {
            units: cost,
            at: at(taken_at),
        };
        let refunded = worse("a refund", &|state, moment| {
            algorithm.refund(state, moment, taken, GiveBack::Refund);
        });
        if let ControlFlow::Break(fault) = refunded {
            return Some(fault);
        }
    }
    let [then, newest] = [older, now].map(|moment| {
        let mut state = state.clone();
        let decision = algorithm::reserve(algorithm, &mut state, at(moment), cost, wait);
        let turn = at(moment).plus(decision.wait().unwrap_or_default());
        let left = algorithm.peek(&state, at(now), 0).remaining();
        (decision.is_denied(), turn <= at(now), left)
    });
    let is_early = !then.0 && then.1 && (newest.0 || !newest.1);
    (is_early || (then.0 == newest.0 && then.2 > newest.2))
        .then(|| format!("a reservation of {cost}: {then:?} at {older}, {newest:?} at {now}"))
}

/// Its interval is truncated, so it admits slightly more than the bucket of its quota.
///
/// Shows promises 1, 2, 7.
#[cfg(feature = "governor")]
#[test]
fn gcra_keeps_the_laws() {
    for seed in seeds(40) {
        let drawn = crate::subjects::random_quota(&mut Random::new(seed));
        let gcra = Subject::new("gcra", tower_throttle::Gcra::new(drawn), |_, _| u64::MAX);
        assert_eq!(gcra.check(seed), Ok(()));
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
