//! Every place decides like a plain state.

use std::time::Duration;

use tower_throttle::algorithm::Algorithm;
use tower_throttle::clock::{Clock, Tick};
use tower_throttle::store::Receipt;
use tower_throttle::testkit::check_backend;
use tower_throttle::{Local, ManualClock};

use crate::places::place::{InTable, Limited, Place, Plain, Step};
use crate::random::{Random, seeds};
use crate::subjects::{random_subjects, subjects};

/// A random operation. `variants` are what the algorithm may change to.
pub(crate) fn random_step<A: Algorithm>(random: &mut Random, variants: &[A], now: u64) -> Step<A> {
    let quota = variants[0].quota();
    let period = u64::try_from(quota.period().as_nanos()).expect("short");
    let cost = match random.below(4) {
        0 => random.below(quota.capacity() + 2),
        _ => 1 + random.below(3),
    };
    match random.below(16) {
        0..=4 | 8 => Step::Take(cost),
        5 | 6 => Step::Reserve(cost, Duration::from_nanos(random.below(2 * period))),
        7 => Step::Peek(cost),
        9 => Step::Acquire(cost),
        10 => Step::TakeUpTo(cost),
        11 | 12 => {
            let since = random.below(2 * period);
            Step::Refund(cost, Receipt::at(now.saturating_sub(since)))
        }
        13 => Step::Charge(cost),
        14 => Step::Change(random.pick(variants).clone()),
        _ => Step::Reset,
    }
}

/// The first operation for which the places differ.
pub(crate) fn difference<A: Algorithm>(
    one: &mut impl Place<A>,
    other: &mut impl Place<A>,
    variants: &[A],
    random: &mut Random,
) -> Option<String> {
    let quota = variants[0].quota();
    let period = u64::try_from(quota.period().as_nanos()).expect("short");
    let mut now = one.moment().max(other.moment());
    for _ in 0..80 {
        now += match random.below(6) {
            0 | 1 => 0,
            2 => random.below(period / quota.limit() + 2),
            3 => period - now % period,
            _ => random.below(period + 1),
        };
        let mut step = random_step(random, variants, now);
        let tick = Tick::from_nanos(now);
        let skips = random.below(3) > 0 || one.is_forgettable(tick) || other.is_forgettable(tick);
        if matches!(step, Step::Change(_)) && skips {
            step = Step::Take(1);
        }
        let is_change = matches!(step, Step::Change(_));
        let Some(right) = other.apply(tick, &step) else {
            if is_change {
                return None;
            }
            // It has no such operation, and did nothing.
            continue;
        };
        let Some(left) = one.apply(tick, &step) else {
            // One of them has no such change. From here on they differ.
            return None;
        };
        if left != right {
            return Some(format!("{step:?} at {now}: {left:?} and {right:?}"));
        }
    }
    None
}

#[test]
fn a_limiter_and_a_table_decide_like_a_plain_state() {
    for seed in seeds(60) {
        let mut random = Random::new(seed);
        let from = random_subjects(&mut random);
        let quota = from[2].algorithm.quota();
        // Changes of limit and burst; windows of another length are other windows.
        let to = subjects(
            tower_throttle::Quota::per(1 + random.below(2 * quota.limit()), quota.period()),
            1 + random.below(3 * quota.limit()),
            2 + random.below(10),
        );
        let start = Tick::from_nanos(random.log_uniform(41));
        for (from, to) in from.into_iter().zip(to) {
            let (name, variants) = (from.name, [from.algorithm, to.algorithm]);
            let plain = || Plain::new(variants[0].clone(), start);
            let mut random = Random::new(seed ^ 0xfeed);
            let fault = if seed % 2 == 0 {
                let mut limited = Limited::new(variants[0].clone(), start);
                difference(&mut plain(), &mut limited, &variants, &mut random)
            } else {
                let mut table = InTable::new(variants[0].clone(), start);
                difference(&mut plain(), &mut table, &variants, &mut random)
            };
            assert_eq!(fault, None, "seed {seed}: {name}, {variants:?}");
        }
    }
}

/// Shows promises 12, 370.
#[tokio::test(flavor = "current_thread")]
async fn a_table_decides_as_a_backend_like_a_plain_state() {
    for seed in seeds(60) {
        for subject in random_subjects(&mut Random::new(seed)) {
            let clock = ManualClock::new();
            clock.set(Tick::from_nanos(Random::new(seed).log_uniform(41)));
            let table = Local::new(subject.algorithm.clone()).with_clock(clock.clone());
            let pass = async |span| {
                clock.advance(span);
                Some(clock.now())
            };
            let checked = check_backend(&table, &subject.algorithm, ["a", "b"], pass, seed).await;
            assert_eq!(checked, Ok(()), "{:?}", subject.algorithm);
        }
    }
}
