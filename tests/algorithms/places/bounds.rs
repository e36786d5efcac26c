//! The promises hold in every place of this process.

use tower_throttle::All;
use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::clock::Tick;

use crate::places::place::{InTable, Limited, Plain};
use crate::places::subjected::Subjected;
use crate::random::{Random, seeds};
use crate::subjects::{Subject, random_subjects};

/// Every subject alone and in each wrapper, in every place. Returns what is wrong.
fn faults_of(subjects: &[Subject], algorithm: &AnyAlgorithm, seed: u64) -> Option<String> {
    let law = Subjected {
        subjects,
        exact_time: true,
        nanos_per_moment: 1,
    };
    let start = Tick::from_nanos(Random::new(seed).log_uniform(41));
    let mut random = Random::new(seed ^ 0xbead);
    let algorithm = algorithm.clone();
    match seed % 4 {
        0 => law.fault(&mut Limited::new(algorithm, start), &mut random),
        1 => law.fault(&mut InTable::new(algorithm, start, false), &mut random),
        2 => law.fault(&mut InTable::new(algorithm, start, true), &mut random),
        _ => law.fault(&mut Plain::new(algorithm, start), &mut random),
    }
}

/// Shows promises 1, 12, 190.
#[test]
fn every_algorithm_keeps_its_promise_in_every_place() {
    for seed in seeds(100) {
        for subject in random_subjects(&mut Random::new(seed)) {
            let algorithm = subject.algorithm.clone();
            let fault = faults_of(std::slice::from_ref(&subject), &algorithm, seed);
            assert_eq!(fault, None, "seed {seed}: {subject:?}");
        }
    }
}

/// Shows promise 12.
#[test]
fn every_part_of_a_set_keeps_its_promise_in_every_place() {
    for seed in seeds(100) {
        let mut random = Random::new(seed);
        let all = random_subjects(&mut random);
        let parts: Vec<Subject> = (0..3).map(|_| random.pick(&all).clone()).collect();
        let [a, b, c] = [0, 1, 2].map(|part| parts[part].algorithm.clone());
        for (count, set) in [
            (2, AnyAlgorithm::new((a.clone(), b.clone()))),
            (3, AnyAlgorithm::new(((a.clone(), b.clone()), c.clone()))),
            (3, AnyAlgorithm::new(All::new([a, b, c]))),
        ] {
            let fault = faults_of(&parts[..count], &set, seed);
            assert_eq!(fault, None, "seed {seed}: {set:?}");
        }
    }
}
