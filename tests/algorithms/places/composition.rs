//! A set of limits decides like its parts, and a set of one part like that part.

use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, AnyAlgorithm, IntoAlgorithm};
use tower_throttle::clock::Tick;
use tower_throttle::{All, Decision, Quota};

use crate::places::alike::{difference, random_step};
use crate::places::place::{Outcome, Place, Plain, Step};
use crate::random::{Random, seeds};
use crate::subjects::{Subject, random_subjects, subjects};

/// Several states, each of which a set would have.
pub(crate) struct Apart {
    parts: Vec<Plain<AnyAlgorithm>>,
    now: Tick,
}

impl Apart {
    pub(crate) fn new(algorithms: &[AnyAlgorithm], now: Tick) -> Self {
        let parts = algorithms.iter().cloned();
        Self {
            parts: parts.map(|part| Plain::new(part, now)).collect(),
            now,
        }
    }

    /// Applies `step` to all parts if `look` denies in none of them, and returns the longest wait.
    fn all_or_none(
        &mut self,
        now: Tick,
        step: &Step<AnyAlgorithm>,
        look: impl Fn(&Plain<AnyAlgorithm>) -> Decision,
    ) -> Option<Duration> {
        let looked: Vec<_> = self.parts.iter().map(look).collect();
        if looked.iter().any(Decision::is_denied) {
            self.count_denials(now, step, &looked);
            return None;
        }
        for part in &mut self.parts {
            let _ = part.apply(now, step);
        }
        looked.iter().filter_map(Decision::wait).max()
    }

    /// Applies `step` to the parts that deny it, which may count that.
    fn count_denials(&mut self, now: Tick, step: &Step<AnyAlgorithm>, looked: &[Decision]) {
        for (part, looked) in self.parts.iter_mut().zip(looked) {
            if looked.is_denied() {
                let _ = part.apply(now, step);
            }
        }
    }

    /// What a set has to return: `None` for a denial, or the wait.
    pub(crate) fn expected(&mut self, now: Tick, step: &Step<AnyAlgorithm>) -> Expected {
        self.now = now;
        match step {
            Step::Take(cost) => {
                let look =
                    |part: &Plain<AnyAlgorithm>| part.algorithm.peek(&part.state, now, *cost);
                Expected::Wait(self.all_or_none(now, step, look))
            }
            Step::Reserve(cost, most) => {
                let look = |part: &Plain<AnyAlgorithm>| {
                    part.algorithm.peek_within(&part.state, now, *cost, *most)
                };
                if self.parts.iter().any(|part| look(part).is_denied()) {
                    // It counts in each part that has no room for it now.
                    return self.expected(now, &Step::Take(*cost));
                }
                Expected::Wait(self.all_or_none(now, step, look))
            }
            Step::Peek(cost) => {
                let peek =
                    |part: &Plain<AnyAlgorithm>| part.algorithm.peek(&part.state, now, *cost);
                let looked: Vec<_> = self.parts.iter().map(peek).collect();
                let denied = looked.iter().any(Decision::is_denied);
                let wait = looked.iter().filter_map(Decision::wait).max();
                Expected::Wait(wait.filter(|_| !denied))
            }
            Step::Acquire(cost) => {
                let reserve = Step::Reserve(*cost, Duration::ZERO);
                match self.expected(now, &reserve) {
                    Expected::Wait(wait) => Expected::Passed(wait == Some(Duration::ZERO)),
                    other => other,
                }
            }
            Step::TakeUpTo(most) => {
                let remaining = |part: &Plain<AnyAlgorithm>| {
                    part.algorithm.peek(&part.state, now, 0).remaining()
                };
                let least = self.parts.iter().map(remaining).min().unwrap_or(0);
                let took = least.min(*most);
                for part in &mut self.parts {
                    let _ = part.apply(now, &Step::Take(took));
                }
                Expected::Took(took)
            }
            Step::Refund(..) | Step::Charge(_) | Step::Reset | Step::Change(_) => {
                for part in &mut self.parts {
                    let _ = part.apply(now, step);
                }
                Expected::Done
            }
        }
    }

    /// Changes each part to its own algorithm.
    fn change(&mut self, now: Tick, to: &[AnyAlgorithm]) {
        for (part, to) in self.parts.iter_mut().zip(to) {
            let _ = part.apply(now, &Step::Change(to.clone()));
        }
    }

    fn states(&self) -> Vec<String> {
        let states = self.parts.iter();
        states.map(|part| format!("{:?}", part.state)).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Wait(Option<Duration>),
    Passed(bool),
    Took(u64),
    Done,
}

fn as_expected(outcome: Outcome) -> Expected {
    match outcome {
        Outcome::Decided(decision) => Expected::Wait(decision.wait()),
        Outcome::Passed(passed) => Expected::Passed(passed),
        Outcome::Took(units) => Expected::Took(units),
        Outcome::Done => Expected::Done,
    }
}

/// The first operation for which a set differs from its parts. `join` makes the set.
pub(crate) fn differs_from_parts<A: Algorithm>(
    variants: &[Vec<AnyAlgorithm>],
    join: impl Fn(&[AnyAlgorithm]) -> A,
    states: impl Fn(&A::State) -> Vec<String>,
    random: &mut Random,
) -> Option<String> {
    let start = Tick::from_nanos(random.log_uniform(41));
    let (mut set, mut apart) = (
        Plain::new(join(&variants[0]), start),
        Apart::new(&variants[0], start),
    );
    let period = u64::try_from(variants[0][0].quota().period().as_nanos()).expect("short");
    let mut newest = start.as_nanos();
    for _ in 0..80 {
        let now = match random.below(8) {
            0..=2 => newest,
            3..=5 => newest + random.below(period + 1),
            6 => newest + period - newest % period,
            _ => newest.saturating_sub(random.below(3 * period)),
        };
        newest = newest.max(now);
        let tick = Tick::from_nanos(now);
        let step = random_step(random, &variants[0], now);
        let (expected, outcome) = if let Step::Change(_) = step {
            let to = random.pick(variants);
            apart.change(tick, to);
            let change = Step::Change(join(to));
            (Expected::Done, set.apply(tick, &change))
        } else {
            let own = match &step {
                Step::Take(cost) => Step::Take(*cost),
                Step::Reserve(cost, most) => Step::Reserve(*cost, *most),
                Step::Peek(cost) => Step::Peek(*cost),
                Step::Acquire(cost) => Step::Acquire(*cost),
                Step::TakeUpTo(most) => Step::TakeUpTo(*most),
                Step::Refund(cost, receipt) => Step::Refund(*cost, *receipt),
                Step::Charge(cost) => Step::Charge(*cost),
                Step::Reset | Step::Change(_) => Step::Reset,
            };
            (apart.expected(tick, &step), set.apply(tick, &own))
        };
        let outcome = as_expected(outcome.expect("a plain state has every operation"));
        let (own, each) = (states(&set.state), apart.states());
        if outcome != expected || own != each {
            return Some(format!(
                "{step:?} at {now}: {outcome:?} with {own:?}, the parts {expected:?} with {each:?}"
            ));
        }
    }
    None
}

/// Three subjects and the same three with another limit and burst.
pub(crate) fn variants(seed: u64) -> Vec<Vec<AnyAlgorithm>> {
    let mut random = Random::new(seed);
    let from = random_subjects(&mut random);
    let quota = from[2].algorithm.quota();
    let to = subjects(
        Quota::per(1 + random.below(2 * quota.limit()), quota.period()),
        1 + random.below(3 * quota.limit()),
        2 + random.below(10),
    );
    let picks = [0, 1, 2].map(|_| random.below(from.len() as u64));
    let pick = |list: &[Subject]| -> Vec<AnyAlgorithm> {
        let picked = picks
            .iter()
            .map(|index| usize::try_from(*index).expect("few"));
        picked.map(|index| list[index].algorithm.clone()).collect()
    };
    vec![pick(&from), pick(&to)]
}

pub(crate) type Pair = All<(AnyAlgorithm, AnyAlgorithm)>;

pub(crate) fn pair(parts: &[AnyAlgorithm]) -> Pair {
    (parts[0].clone(), parts[1].clone()).into_algorithm()
}

pub(crate) fn pair_states(state: &<Pair as Algorithm>::State) -> Vec<String> {
    vec![format!("{:?}", state.0), format!("{:?}", state.1)]
}

#[test]
fn a_pair_a_triple_and_a_list_decide_like_their_parts() {
    for seed in seeds(100) {
        let three = variants(seed);
        let two: Vec<_> = three.iter().map(|parts| parts[..2].to_vec()).collect();
        let mut random = Random::new(seed ^ 0xcafe);
        let fault = differs_from_parts(&two, pair, pair_states, &mut random);
        assert_eq!(fault, None, "seed {seed}: a pair of {two:?}");
        let fault = differs_from_parts(
            &three,
            |parts| (parts[0].clone(), parts[1].clone(), parts[2].clone()).into_algorithm(),
            |(a, b, c)| vec![format!("{a:?}"), format!("{b:?}"), format!("{c:?}")],
            &mut random,
        );
        assert_eq!(fault, None, "seed {seed}: a triple of {three:?}");
        let fault = differs_from_parts(
            &three,
            |parts| All::new(parts.to_vec()),
            |states| states.iter().map(|state| format!("{state:?}")).collect(),
            &mut random,
        );
        assert_eq!(fault, None, "seed {seed}: a list of {three:?}");
    }
}

#[test]
fn a_wrapper_of_one_part_decides_like_the_part() {
    for seed in seeds(60) {
        let three = variants(seed);
        let start = Tick::from_nanos(Random::new(seed).log_uniform(41));
        let ones: Vec<AnyAlgorithm> = three.iter().map(|parts| parts[0].clone()).collect();
        let wrappers: [fn(&AnyAlgorithm) -> AnyAlgorithm; 2] = [
            |one| AnyAlgorithm::new(one.clone()),
            |one| AnyAlgorithm::new(All::new([one.clone()])),
        ];
        for wrap in wrappers {
            let mut random = Random::new(seed ^ 0xd00d);
            let mut one = Plain::new(ones[0].clone(), start);
            let mut wrapped = Wrapped {
                place: Plain::new(wrap(&ones[0]), start),
                wrap,
            };
            let fault = difference(&mut one, &mut wrapped, &ones, &mut random);
            assert_eq!(fault, None, "seed {seed}: {:?}", wrapped.place.algorithm);
        }
    }
}

/// A state of a wrapper, changed to wrapped algorithms.
struct Wrapped {
    place: Plain<AnyAlgorithm>,
    wrap: fn(&AnyAlgorithm) -> AnyAlgorithm,
}

impl Place<AnyAlgorithm> for Wrapped {
    fn apply(&mut self, now: Tick, step: &Step<AnyAlgorithm>) -> Option<Outcome> {
        match step {
            Step::Change(to) => {
                let to = (self.wrap)(to);
                self.place.apply(now, &Step::Change(to))
            }
            step => self.place.apply(now, step),
        }
    }

    fn moment(&self) -> u64 {
        self.place.moment()
    }
}
