//! A(T), the cost admitted in any interval of length T, stays within the promise.

use super::random::Random;
use super::subject::{Promise, Subject};
use crate::algorithm::{Cost, GiveBack, Words};
use crate::clock::Tick;

/// An admitted request: when, and its cost.
pub(super) type Admission = (u64, u64);

/// Checks every interval between two admissions. Returns the first that exceeds the promise.
pub(super) fn broken_interval<A: Words>(
    subject: &Subject<A>,
    admissions: &[Admission],
) -> Option<String> {
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

/// Sends bursts at the moments most likely to break a promise and between them, and requests with a
/// moment older than the state.
pub(super) fn attack<A: Words>(subject: &Subject<A>, random: &mut Random) -> Vec<Admission> {
    let algorithm = &subject.algorithm;
    let interval = (subject.period / subject.limit).max(1);
    let mut now = random.log_uniform(41);
    let mut newest = now;
    // The newest moment of an admission, which is all that a state records.
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

/// Runs one attack. Returns how it breaks the promise, if it does.
pub(super) fn broken_promise<A: Words>(subject: &Subject<A>, seed: u64) -> Option<String> {
    let mut random = Random::new(seed);
    let admissions = attack(subject, &mut random);
    broken_interval(subject, &admissions)
}

/// Takes costs at random moments and refunds some of them later. Returns the costs that are kept.
fn kept_costs<A: Words>(subject: &Subject<A>, seed: u64) -> Vec<Admission> {
    let mut random = Random::new(seed);
    let algorithm = &subject.algorithm;
    let mut now = random.log_uniform(41);
    let mut state = algorithm.fresh(Tick::from_nanos(now));
    // When a request passed, its cost, and when it was decided.
    let mut kept: Vec<(u64, u64, u64)> = Vec::new();
    for _ in 0..150 {
        now += match random.below(6) {
            0 | 1 => 0,
            2 => random.below(subject.period / subject.limit + 2),
            3 => subject.period - now % subject.period,
            _ => random.below(subject.period),
        };
        if random.below(3) == 0 && !kept.is_empty() {
            let paced = matches!(subject.promise, Promise::Paced(_));
            let last = kept.len() - 1;
            let index = random.below(kept.len() as u64);
            // The other queued requests keep their moments, so a refund frees only the last turn.
            let index = if paced {
                last
            } else {
                usize::try_from(index).expect("few")
            };
            let (goes_at, cost, decided_at) = kept[index];
            let taken_at = if goes_at > now { now } else { decided_at };
            let part = if subject.refunds_parts {
                1 + random.below(cost)
            } else {
                cost
            };
            let [taken, present] = [taken_at, now].map(Tick::from_nanos);
            algorithm.refund(
                &mut state,
                present,
                Cost::new(part, taken),
                GiveBack::Refund,
            );
            if part == cost {
                kept.remove(index);
            } else {
                kept[index].1 -= part;
            }
            continue;
        }
        let cost = match subject.promise {
            Promise::Paced(max_cost) => 1 + random.below(max_cost),
            _ => 1 + random.below(subject.limit.min(20)),
        };
        let decision = algorithm.decide(&mut state, Tick::from_nanos(now), cost);
        if let Some(wait) = decision.wait() {
            let wait = u64::try_from(wait.as_nanos()).expect("short waits");
            kept.push((now + wait, cost, now));
        }
    }
    let mut kept: Vec<_> = kept.into_iter().map(|(at, cost, _)| (at, cost)).collect();
    kept.sort_unstable();
    kept
}

/// Returns how the costs that are kept after refunds break the promise, if they do.
pub(super) fn refunded_too_much<A: Words>(subject: &Subject<A>, seed: u64) -> Option<String> {
    broken_interval(subject, &kept_costs(subject, seed))
}
