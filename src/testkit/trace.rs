//! A trace: operations on the state of one key, each at its moment. One that breaks a law is shortened.

use std::fmt;

use super::law::Law;
use super::random::Random;
use super::subject::{Promise, Subject};
use crate::algorithm::{Algorithm, Cost, GiveBack};
use crate::clock::{Tick, nanos};

/// An operation of a trace, and its moment.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Step {
    at: u64,
    op: Op,
}

#[derive(Clone, Copy, PartialEq)]
enum Op {
    Take(u64),
    /// Gives back one of the costs that are kept, or a part of it: which one, and how much, as numbers that
    /// are reduced to those that there are.
    Refund(u64, u64),
}

/// A cost that was admitted and not refunded.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    pub(super) passes_at: u64,
    pub(super) cost: u64,
    decided_at: u64,
}

/// What a trace leaves.
pub(super) struct Run<S> {
    pub(super) state: S,
    /// The newest moment.
    pub(super) now: u64,
    pub(super) kept: Vec<Kept>,
}

/// A random trace for a law. It has bursts at the moments most likely to break a promise and between them; for
/// the promise also requests at moments older than the state.
pub(super) fn random<A: Algorithm>(
    subject: &Subject<A>,
    law: Law,
    random: &mut Random,
) -> Vec<Step> {
    let (period, interval) = (subject.period, (subject.period / subject.limit).max(1));
    let length = match law {
        Law::Promise | Law::Refunds => 120,
        _ => random.below(60),
    };
    let mut newest = random.log_uniform(41);
    let mut steps = Vec::new();
    for _ in 0..length {
        let next = match random.below(9) {
            0..=2 => 0,
            3 => random.below(interval + 1),
            4 => interval,
            // To the next boundary of a window, or just before it.
            5 => period - newest % period,
            6 => (period - newest % period).saturating_sub(1),
            7 => random.below(2 * period),
            _ => random.log_uniform(42),
        };
        let mut at = newest + next;
        if law == Law::Promise && random.below(8) == 0 {
            at = newest.saturating_sub(random.log_uniform(43));
        }
        newest = newest.max(at);
        let cost = match (&subject.promise, law) {
            (Promise::Paced(most), Law::Promise | Law::Refunds) => 1 + random.below(*most),
            (_, Law::Promise) => 1 + random.below(3),
            (_, Law::Refunds) => 1 + random.below(subject.limit.min(20)),
            _ => random.below(subject.burst.max(subject.limit) + 3),
        };
        let (op, times) = match law {
            Law::Refunds if random.below(3) == 0 => (Op::Refund(random.next(), random.next()), 1),
            Law::Promise => (Op::Take(cost), 1 + random.below(subject.burst + 2).min(40)),
            _ => (Op::Take(cost), 1),
        };
        steps.extend((0..times).map(|_| Step { at, op }));
    }
    steps
}

/// Runs a trace, and tells what each of its steps does.
pub(super) fn run<A: Algorithm>(
    subject: &Subject<A>,
    steps: &[Step],
    mut tell: impl FnMut(fmt::Arguments<'_>),
) -> Run<A::State> {
    let algorithm = &subject.algorithm;
    let start = steps.first().map_or(0, |step| step.at);
    let mut state = algorithm.fresh(Tick::from_nanos(start));
    let (mut now, mut kept) = (start, Vec::<Kept>::new());
    // The newest moment of an admission, which is all that a state records.
    let mut seen = 0;
    for &Step { at, op } in steps {
        now = now.max(at);
        let moment = Tick::from_nanos(at);
        match op {
            Op::Take(cost) => {
                let decision = algorithm.decide(&mut state, moment, cost);
                let (verdict, left) = (decision.verdict, decision.remaining());
                tell(format_args!(
                    "{at} ns: take {cost}: {verdict:?}, {left} left"
                ));
                if let Some(wait) = decision.wait().filter(|_| cost > 0) {
                    seen = seen.max(at);
                    kept.push(Kept {
                        passes_at: seen.max(at + nanos(wait)),
                        cost,
                        decided_at: at,
                    });
                }
            }
            Op::Refund(..) if kept.is_empty() => {}
            Op::Refund(which, part) => {
                // The other queued requests keep their moments, so a refund frees only the last turn.
                let index = match subject.promise {
                    Promise::Paced(_) => kept.len() - 1,
                    _ => usize::try_from(which % kept.len() as u64).expect("few"),
                };
                let Kept {
                    passes_at,
                    cost,
                    decided_at,
                } = kept[index];
                let part = if subject.refunds_parts {
                    1 + part % cost
                } else {
                    cost
                };
                let taken_at = if passes_at > at { at } else { decided_at };
                let taken = Cost::new(part, Tick::from_nanos(taken_at));
                algorithm.refund(&mut state, moment, taken, GiveBack::Refund);
                let left = algorithm.peek(&state, moment, 0).remaining();
                tell(format_args!(
                    "{at} ns: refund {part} of the {cost} taken at {decided_at} ns: {left} left"
                ));
                kept[index].cost -= part;
                kept.retain(|kept| kept.cost > 0);
            }
        }
    }
    Run { state, now, kept }
}

/// The fault of a trace, if it has one, and the fewest of its steps that still have one.
pub(super) fn shortened(
    mut steps: Vec<Step>,
    fault: impl Fn(&[Step]) -> Option<String>,
) -> Option<(Vec<Step>, String)> {
    let mut found = fault(&steps)?;
    // Halves, quarters, .. and single steps.
    let mut length = steps.len();
    while length > 0 {
        let mut from = 0;
        while from < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(from..steps.len().min(from + length));
            match fault(&fewer) {
                Some(fault) => (steps, found) = (fewer, fault),
                None => from += length,
            }
        }
        length /= 2;
    }
    Some((steps, found))
}
