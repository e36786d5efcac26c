//! What is admitted and kept stays within the promise; a denial takes nothing; `retry_after` is exact.

use std::fmt::Debug;
use std::time::Duration;

use tower_throttle::Decision;
use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::clock::Tick;
use tower_throttle::store::Receipt;

use crate::places::place::{Outcome, Place, Plain, Step};
use crate::random::Random;
use crate::subjects::{Promise, Subject};

/// A cost that was admitted and is kept.
#[derive(Clone, Debug)]
struct Kept {
    /// When it passes each limit.
    passes: Vec<Passage>,
    cost: u64,
    /// When time begins to return it: at its turn, or at the decision for a set of limits.
    receipt: Receipt,
}

/// When a cost passes one limit.
#[derive(Clone, Copy, Debug)]
struct Passage {
    at: u64,
    /// The same if no earlier than the refunds before it. Not every state records their moments, so
    /// with a clock that steps back either may be the moment by which the limit counts.
    at_after_refunds: u64,
    /// Whether it waited: its turn is reported in whole nanoseconds, rounded up.
    waited: bool,
}

/// How to find the moment of an operation, and the receipt of what it took.
pub(crate) struct Subjected<'a> {
    /// Each promise has to hold.
    pub(crate) subjects: &'a [Subject],
    /// Whether time can be moved to a nanosecond.
    pub(crate) exact_time: bool,
    /// The unit of moments and waits.
    pub(crate) nanos_per_moment: u64,
}

impl Subjected<'_> {
    /// The first interval in which more is kept than is promised.
    fn broken_interval(&self, kept: &[Kept]) -> Option<String> {
        let limits = self.subjects.iter().enumerate();
        let mut broken = limits.filter_map(|(index, subject)| {
            let passes = kept.iter().map(|kept| (kept.passes[index], kept.cost));
            let passes: Vec<_> = passes.collect();
            broken_interval(subject, passes.clone(), |passage| passage.at)?;
            broken_interval(subject, passes, |passage| passage.at_after_refunds)
        });
        broken.next()
    }

    fn period(&self) -> u64 {
        self.subjects[0].period
    }

    fn largest_cost(&self) -> u64 {
        let largest = self.subjects.iter().map(|subject| match subject.promise {
            Promise::Paced(most) => most,
            _ => subject.limit.min(subject.burst).min(20),
        });
        largest.min().unwrap_or(1)
    }

    fn is_line(&self) -> bool {
        let mut subjects = self.subjects.iter();
        subjects.any(|subject| matches!(subject.promise, Promise::Paced(_)))
    }

    /// Runs a random trace. Returns what is wrong, and the steps until then.
    pub(crate) fn fault<A: Debug>(
        &self,
        place: &mut impl Place<A>,
        random: &mut Random,
    ) -> Option<String> {
        let mut trace = Vec::new();
        let fault = self.fault_of_trace(place, random, &mut trace)?;
        Some(format!("{fault}\n{}", trace.join("\n")))
    }

    fn fault_of_trace<A: Debug>(
        &self,
        place: &mut impl Place<A>,
        random: &mut Random,
        trace: &mut Vec<String>,
    ) -> Option<String> {
        let steps_back = self.exact_time && random.below(3) == 0;
        // A set does not report the turn in each of its parts.
        let parts = self.subjects.iter().filter(|_| self.subjects.len() > 1);
        let start = Tick::from_nanos(place.moment());
        let mut parts: Vec<_> = parts
            .map(|subject| Plain::new(subject.algorithm.clone(), start))
            .collect();
        let mut now = place.moment();
        let mut newest = now;
        // The newest moment of an admission, which is all that a state records.
        let (mut seen, mut refunded) = (0, 0);
        let mut kept = Vec::<Kept>::new();
        for _ in 0..120 {
            let step = self.next_step(random, &mut kept, newest);
            // A bucket knows how much time has returned of a cost only by the clock, so a refund at an
            // older moment may give back more.
            let may_step_back = steps_back && !matches!(step, Step::Refund(..));
            now = if may_step_back && random.below(4) == 0 {
                newest.saturating_sub(random.below(3 * self.period()))
            } else {
                self.next_moment(random, newest)
            };
            newest = newest.max(now);
            if matches!(step, Step::Reset) {
                if let Some(fault) = self.broken_interval(&kept) {
                    return Some(fault);
                }
                kept.clear();
                (seen, refunded) = (0, 0);
            }
            let before = place.bytes();
            let Some(outcome) = place.apply(Tick::from_nanos(now), &step) else {
                continue;
            };
            let moment = place.moment();
            trace.push(format!("{moment}: {step:?}, {outcome:?}"));
            let (took, wait) = match (outcome, &step) {
                (Outcome::Decided(decision), Step::Take(cost) | Step::Reserve(cost, _)) => {
                    match decision.wait() {
                        Some(wait) => (*cost, nanos(wait)),
                        None => (0, 0),
                    }
                }
                (Outcome::Passed(true), Step::Acquire(cost)) => (*cost, 0),
                (Outcome::Took(cost), _) => (cost, 0),
                _ => (0, 0),
            };
            if took > 0 {
                let single = self.subjects.len() == 1;
                // A wait is rounded up to a whole nanosecond.
                let begins = if single {
                    moment + wait.saturating_sub(1)
                } else {
                    moment
                };
                let receipt = match outcome {
                    Outcome::Decided(decision) if self.nanos_per_moment > 1 => decision.receipt(),
                    _ => Receipt::at(begins),
                };
                seen = seen.max(moment);
                let passes = |wait| Passage {
                    at: seen.max(moment + wait),
                    at_after_refunds: seen.max(moment + wait).max(refunded),
                    waited: wait > 0,
                };
                let waits = match parts.as_mut_slice() {
                    [] => vec![wait],
                    parts => part_waits(parts, Tick::from_nanos(moment), &step, took),
                };
                kept.push(Kept {
                    passes: waits.into_iter().map(passes).collect(),
                    cost: took,
                    receipt,
                });
            } else if let Step::Refund(..) | Step::Charge(_) | Step::Reset = step {
                refunded = refunded.max(moment);
                for part in &mut parts {
                    part.apply(Tick::from_nanos(moment), &retyped(&step));
                }
            }
            let idle = matches!(step, Step::Refund(..) | Step::Charge(_) | Step::Reset);
            if took == 0 && !idle && before != place.bytes() {
                return Some(format!("{step:?} took nothing and changed the state"));
            }
            if let Outcome::Decided(decision) = outcome {
                if let Some(fault) = self.inexact_retry(place, &step, decision, &mut newest) {
                    return Some(fault);
                }
            }
        }
        self.broken_interval(&kept)
    }

    fn next_moment(&self, random: &mut Random, newest: u64) -> u64 {
        let (period, subject) = (self.period(), &self.subjects[0]);
        match random.below(8) {
            0..=2 => newest,
            3 => newest + random.below(period / subject.limit + 2),
            4 => newest + period - newest % period,
            5 => newest + (period - newest % period).saturating_sub(1),
            6 => newest + random.below(2 * period),
            _ => newest + random.below(period),
        }
    }

    /// The next operation. A cost that is refunded is no longer kept.
    fn next_step<A>(&self, random: &mut Random, kept: &mut Vec<Kept>, newest: u64) -> Step<A> {
        let cost = 1 + random.below(self.largest_cost());
        match random.below(20) {
            0..=6 | 10 | 11 => Step::Take(cost),
            7 | 8 => Step::Reserve(cost, Duration::from_nanos(random.below(2 * self.period()))),
            9 => Step::Peek(random.below(cost + 1)),
            12 => Step::Acquire(cost),
            13 => Step::TakeUpTo(random.below(2 * cost)),
            14 if random.below(4) == 0 => Step::Charge(cost),
            15 if random.below(8) == 0 => Step::Reset,
            _ if kept.is_empty() => Step::Take(cost),
            _ => {
                // Requests that wait behind it keep their moments, so a refund frees only the last
                // turn.
                let mut passes = kept.iter().flat_map(|kept| &kept.passes);
                let is_awaited = passes.any(|passage| passage.waited && passage.at >= newest);
                let last = kept.len() - 1;
                let any = usize::try_from(random.below(kept.len() as u64)).expect("few");
                let index = if self.is_line() || is_awaited {
                    last
                } else {
                    any
                };
                let part = 1 + random.below(kept[index].cost);
                kept[index].cost -= part;
                let receipt = kept[index].receipt;
                if kept[index].cost == 0 {
                    kept.remove(index);
                }
                Step::Refund(part, receipt)
            }
        }
    }

    /// Whether the same request passes at its `retry_after` and not one nanosecond earlier. Moves
    /// time on to there.
    fn inexact_retry<A: Debug>(
        &self,
        place: &mut impl Place<A>,
        step: &Step<A>,
        decision: Decision,
        newest: &mut u64,
    ) -> Option<String> {
        let (Step::Take(cost) | Step::Peek(cost), Some(retry)) = (step, decision.retry_after)
        else {
            return None;
        };
        if !self.exact_time || *newest != place.moment() || decision.is_admitted() {
            return None;
        }
        let at = *newest + nanos(retry);
        let mut passes = |at| match place.apply(Tick::from_nanos(at), &Step::Peek(*cost)) {
            Some(Outcome::Decided(again)) => !again.is_denied(),
            _ => false,
        };
        if nanos(retry) > 0 && passes(at - 1) {
            return Some(format!("{step:?} passes before its retry_after {retry:?}"));
        }
        if !passes(at) {
            return Some(format!("{step:?} is denied at its retry_after {retry:?}"));
        }
        *newest = at;
        None
    }
}

/// The first interval in which more passes one limit than is promised.
fn broken_interval(
    subject: &Subject,
    mut passes: Vec<(Passage, u64)>,
    at: impl Fn(&Passage) -> u64,
) -> Option<String> {
    // Of those at one moment, first those whose turns may have come a little earlier.
    passes.sort_unstable_by_key(|(passage, cost)| (at(passage), !passage.waited, *cost));
    for (first, (start, _)) in passes.iter().enumerate() {
        let mut sum = 0;
        for (end, cost) in &passes[first..] {
            sum += cost;
            let bound = subject.bound(at(start), at(end) + u64::from(start.waited));
            if sum > bound {
                let (name, start, end) = (subject.name, at(start), at(end));
                return Some(format!(
                    "{name}: {sum} kept in [{start}, {end}] of at most {bound}"
                ));
            }
        }
    }
    None
}

/// Applies an admission to each part alone. Returns how long it waits there.
fn part_waits<A>(
    parts: &mut [Plain<AnyAlgorithm>],
    now: Tick,
    step: &Step<A>,
    cost: u64,
) -> Vec<u64> {
    let step = match step {
        Step::Reserve(_, most) => Step::Reserve(cost, *most),
        _ => Step::Take(cost),
    };
    let wait = |part: &mut Plain<AnyAlgorithm>| match part.apply(now, &step) {
        Some(Outcome::Decided(decision)) => decision.wait().map(nanos),
        _ => None,
    };
    let waits = parts.iter_mut().map(wait);
    waits
        .map(|wait| wait.expect("the set has admitted it"))
        .collect()
}

/// The same operation of another algorithm. A change of algorithm is none of these.
fn retyped<A>(step: &Step<A>) -> Step<AnyAlgorithm> {
    match step {
        Step::Refund(cost, receipt) => Step::Refund(*cost, *receipt),
        Step::Charge(cost) => Step::Charge(*cost),
        _ => Step::Reset,
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).expect("short spans")
}
