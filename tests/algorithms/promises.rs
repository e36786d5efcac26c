//! A(T): what is admitted in any interval stays within the promise.

use tower_throttle::algorithm::Algorithm;
use tower_throttle::clock::Tick;

use crate::random::{Random, seeds};
use crate::subjects::{Promise, Subject, random_subjects};

/// A request that went through: when, and its cost.
pub(crate) type Admission = (u64, u64);

/// Looks at every interval from one admission to another.
pub(crate) fn broken_interval(subject: &Subject, admissions: &[Admission]) -> Option<String> {
    for (first, (start, _)) in admissions.iter().enumerate() {
        let mut sum = 0;
        for (end, cost) in &admissions[first..] {
            sum += cost;
            let bound = subject.bound(end - start);
            if sum > bound {
                return Some(format!(
                    "{}: {sum} admitted in [{start}, {end}], at most {bound} promised, by {:?}",
                    subject.name, subject.algorithm
                ));
            }
        }
    }
    None
}

/// Sends what is most likely to be too much: crowds at every moment that matters and between them,
/// and requests whose moment is older than the state.
pub(crate) fn attack(subject: &Subject, random: &mut Random) -> Vec<Admission> {
    let algorithm = &subject.algorithm;
    let interval = (subject.period / subject.limit).max(1);
    let mut now = random.log_uniform(41);
    let mut newest = now;
    // The newest moment at which something was admitted: all that a state can know.
    let mut seen = 0;
    let mut state = algorithm.fresh(Tick::from_nanos(now));
    let mut admissions = Vec::new();
    for _ in 0..120 {
        now = newest
            + match random.below(8) {
                0 | 1 => 0,
                2 => random.below(interval + 1),
                3 => interval,
                // To the next boundary of a window, or just before it.
                4 => subject.period - newest % subject.period,
                5 => (subject.period - newest % subject.period).saturating_sub(1),
                6 => random.below(2 * subject.period),
                _ => random.log_uniform(42),
            };
        if random.below(8) == 0 {
            now = newest.saturating_sub(random.log_uniform(43));
        }
        newest = newest.max(now);
        let cost = match subject.promise {
            Promise::Paced(max_cost) => 1 + random.below(max_cost),
            _ => 1 + random.below(3),
        };
        for _ in 0..=random.below(subject.burst + 2).min(40) {
            let decision = algorithm.decide(&mut state, Tick::from_nanos(now), cost);
            let Some(wait) = decision.wait() else { break };
            let wait = u64::try_from(wait.as_nanos()).expect("short waits");
            seen = seen.max(now);
            admissions.push((seen.max(now + wait), cost));
        }
    }
    admissions.sort_unstable();
    admissions
}

/// What is wrong with the first of `traces` attacks that breaks the promise.
pub(crate) fn broken_promise(subject: &Subject, seed: u64) -> Option<String> {
    let mut random = Random::new(seed);
    let admissions = attack(subject, &mut random);
    broken_interval(subject, &admissions)
}

#[test]
fn no_attack_breaks_a_promise() {
    let mut admitted = 0;
    for seed in seeds(300) {
        let mut random = Random::new(seed);
        for subject in random_subjects(&mut random) {
            if let Some(fault) = broken_promise(&subject, seed) {
                panic!("seed {seed}: {fault}");
            }
            admitted += attack(&subject, &mut Random::new(seed)).len();
        }
    }
    assert!(admitted > 10_000, "the attacks reach something: {admitted}");
}
