//! A lockout that counts denials decides alike in every place, and in a set as alone.

use std::time::Duration;

use tower_throttle::All;
use tower_throttle::algorithm::{Algorithm, AnyAlgorithm, IntoAlgorithm};
use tower_throttle::clock::Tick;
use tower_throttle::{Lockout, Quota};

use crate::places::alike::difference;
use crate::places::composition::{differs_from_parts, pair, pair_states, variants};
use crate::places::place::{InTable, Limited, Outcome, Place, Plain, Step};
use crate::places::subjected::Subjected;
use crate::random::{Random, seeds};
use crate::subjects::random_subjects;

/// Each limit under a lockout of a few denials.
fn locked(limits: &[AnyAlgorithm], random: &mut Random) -> Vec<AnyAlgorithm> {
    let quota = limits[0].quotas()[0];
    let period = u64::try_from(quota.period().as_nanos()).expect("short");
    let span = Duration::from_nanos;
    let lockout = Lockout::new(Quota::per(1 + random.below(4), span(2 * period)))
        .block(span(1 + random.below(period)))
        .forget(span(4 * period))
        .parole(1);
    let locked = limits
        .iter()
        .map(|limit| lockout.after_denials_of(limit.clone()).into());
    locked.collect()
}

/// Each random limit under a lockout, as it is and after a change.
fn for_each_limit(runs: u64, mut check: impl FnMut(u64, Tick, &[AnyAlgorithm])) {
    for seed in seeds(runs) {
        let mut random = Random::new(seed);
        let start = Tick::from_nanos(random.log_uniform(41));
        for parts in variants(seed).iter().flatten() {
            let once = locked(std::slice::from_ref(parts), &mut random);
            let again = locked(std::slice::from_ref(parts), &mut random);
            check(seed, start, &[once, again].concat());
        }
    }
}

/// Shows promise 224.
#[test]
fn a_lockout_of_denials_decides_alike_in_a_limiter_and_in_a_table() {
    for_each_limit(150, |seed, start, variants| {
        let mut plain = Plain::new(variants[0].clone(), start);
        let mut random = Random::new(seed ^ 0xdead);
        let found = match seed % 3 {
            0 => {
                let mut limited = Limited::new(variants[0].clone(), start);
                difference(&mut plain, &mut limited, variants, &mut random)
            }
            kind => {
                let mut table = InTable::new(variants[0].clone(), start, kind == 1);
                difference(&mut plain, &mut table, variants, &mut random)
            }
        };
        assert_eq!(found, None, "seed {seed}: {variants:?}");
    });
}

/// Shows promise 224.
#[cfg(feature = "cas")]
#[test]
fn two_machines_on_one_store_count_denials_like_a_plain_state() {
    for_each_limit(25, |seed, start, variants| {
        let mut plain = Plain::new(variants[0].clone(), start);
        let mut place = crate::places::cas::InCas::new(&variants[0], start);
        let mut random = Random::new(seed ^ 0xdead);
        let found = difference(&mut plain, &mut place, &variants[..1], &mut random);
        assert_eq!(found, None, "seed {seed}: {:?}", variants[0]);
    });
}

/// Shows promise 224.
#[test]
fn a_set_counts_the_denials_of_each_of_its_parts() {
    for seed in seeds(60) {
        let mut random = Random::new(seed ^ 0xabba);
        // The first two parts count their denials, and the third does not.
        let three: Vec<_> = variants(seed)
            .into_iter()
            .map(|parts| {
                let mut own = locked(&parts[..2], &mut random);
                own.push(parts[2].clone());
                own
            })
            .collect();
        let ends: Vec<_> = three.iter().map(|parts| parts[1..].to_vec()).collect();
        let found = differs_from_parts(&ends, pair, pair_states, &mut random);
        assert_eq!(found, None, "seed {seed}: a pair of {ends:?}");
        let found = differs_from_parts(
            &three,
            |parts| (parts[0].clone(), parts[1].clone(), parts[2].clone()).into_algorithm(),
            |((a, b), c)| vec![format!("{a:?}"), format!("{b:?}"), format!("{c:?}")],
            &mut random,
        );
        assert_eq!(found, None, "seed {seed}: a triple of {three:?}");
        let found = differs_from_parts(
            &three,
            |parts| All::new(parts.to_vec()),
            |states| states.iter().map(|state| format!("{state:?}")).collect(),
            &mut random,
        );
        assert_eq!(found, None, "seed {seed}: a list of {three:?}");
    }
}

/// A place whose denials may change its state.
struct Counting<P>(P);

impl<A, P: Place<A>> Place<A> for Counting<P> {
    fn apply(&mut self, now: Tick, step: &Step<A>) -> Option<Outcome> {
        self.0.apply(now, step)
    }

    fn moment(&self) -> u64 {
        self.0.moment()
    }

    fn bytes(&mut self) -> Option<String> {
        None
    }
}

/// Shows promise 224.
#[test]
fn a_limit_under_a_lockout_keeps_its_promise_and_its_retry_after_is_exact() {
    for seed in seeds(60) {
        let mut random = Random::new(seed);
        for subject in random_subjects(&mut random) {
            let algorithm = locked(std::slice::from_ref(&subject.algorithm), &mut random).remove(0);
            let law = Subjected {
                subjects: std::slice::from_ref(&subject),
                exact_time: true,
                nanos_per_moment: 1,
            };
            let start = Tick::from_nanos(random.log_uniform(41));
            let fault = match seed % 2 {
                0 => law.fault(&mut Counting(Plain::new(algorithm, start)), &mut random),
                _ => law.fault(
                    &mut Counting(InTable::new(algorithm, start, true)),
                    &mut random,
                ),
            };
            assert_eq!(fault, None, "seed {seed}: {subject:?}");
        }
    }
}
