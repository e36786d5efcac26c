//! Mistakes that the laws have to find: in a place, in an algorithm and in a set of limits.

use std::time::Duration;

use tower_throttle::algorithm::{Algorithm, AnyAlgorithm, Cost, GiveBack};
use tower_throttle::clock::Tick;
use tower_throttle::{ConfigError, Decision, Quota};

use crate::places::alike::difference;
use crate::places::composition::{Pair, differs_from_parts, pair, pair_states, variants};
use crate::places::place::{Limited, Mistake, Mistaken, Plain};
use crate::random::Random;
use crate::subjects::random_subjects;

const SEEDS: u64 = 200;

/// Whether the comparison with a plain state finds a mistake in a place.
fn is_seen_by_comparison(mistake: Mistake) -> bool {
    (0..SEEDS).any(|seed| {
        let subjects = random_subjects(&mut Random::new(seed));
        subjects.into_iter().any(|subject| {
            let variants = [subject.algorithm.clone(), subject.algorithm];
            let start = Tick::from_nanos(1 << 40);
            let mut plain = Plain::new(variants[0].clone(), start);
            let place = Limited::new(variants[0].clone(), start);
            let mut wrong = Mistaken { place, mistake };
            difference(&mut plain, &mut wrong, &variants, &mut Random::new(seed)).is_some()
        })
    })
}

#[test]
fn a_mistake_in_a_place_is_seen() {
    for mistake in [
        Mistake::TakeKeepsTurn,
        Mistake::TakesOneMore,
        Mistake::PeekTakes,
        Mistake::RefundForgetsMoment,
        Mistake::RefundTwice,
        Mistake::ChargeForgotten,
        Mistake::ResetForgotten,
        Mistake::ChangeForgets,
        Mistake::ReserveIgnoresWait,
        Mistake::DenialCharges,
        Mistake::AcquireUncounted,
        Mistake::RetryTooEarly,
        Mistake::RetryTooLate,
    ] {
        assert!(is_seen_by_comparison(mistake), "{mistake:?}");
    }
}

/// A mistake in a set of two limits.
#[derive(Clone, Copy, Debug)]
enum Bug {
    /// The first part takes before the second one is looked at.
    TakesFromTheFirst,
    /// A refund that reaches only the first part.
    RefundsTheFirst,
    ChargesTheFirst,
    /// A change that reaches only the first part.
    ChangesTheFirst,
    /// A set whose parts are not asked when a request books a turn.
    BooksNoTurn,
    /// The wait of the first part instead of the longer one.
    WaitsForTheFirst,
}

#[derive(Clone, Debug)]
struct Broken(Pair, Bug);

impl Algorithm for Broken {
    type State = <Pair as Algorithm>::State;

    fn quota(&self) -> Quota {
        self.0.quota()
    }

    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        Ok(Self(self.0.with_quota(quota)?, self.1))
    }

    fn fresh(&self, now: Tick) -> Self::State {
        self.0.fresh(now)
    }

    fn decide(&self, state: &mut Self::State, now: Tick, cost: u64) -> Decision {
        let (first, second) = self.0.parts();
        match self.1 {
            Bug::TakesFromTheFirst => {
                let taken = first.decide(&mut state.0, now, cost);
                if taken.is_denied() {
                    return taken;
                }
                second.decide(&mut state.1, now, cost)
            }
            _ => self.0.decide(state, now, cost),
        }
    }

    fn peek_within(
        &self,
        state: &Self::State,
        now: Tick,
        cost: u64,
        max_wait: Duration,
    ) -> Decision {
        let looked = self.0.peek_within(state, now, cost, max_wait);
        match self.1 {
            Bug::BooksNoTurn => self.0.peek(state, now, cost),
            Bug::WaitsForTheFirst if !looked.is_denied() => {
                self.0.parts().0.peek_within(&state.0, now, cost, max_wait)
            }
            _ => looked,
        }
    }

    fn refund(&self, state: &mut Self::State, now: Tick, cost: Cost, why: GiveBack) {
        match self.1 {
            Bug::RefundsTheFirst => self.0.parts().0.refund(&mut state.0, now, cost, why),
            _ => self.0.refund(state, now, cost, why),
        }
    }

    fn charge(&self, state: &mut Self::State, now: Tick, cost: u64) -> Duration {
        match self.1 {
            Bug::ChargesTheFirst => self.0.parts().0.charge(&mut state.0, now, cost),
            _ => self.0.charge(state, now, cost),
        }
    }

    fn rescale(&self, state: &mut Self::State, from: &Self, now: Tick) {
        match self.1 {
            Bug::ChangesTheFirst => self
                .0
                .parts()
                .0
                .rescale(&mut state.0, &from.0.parts().0, now),
            _ => self.0.rescale(state, &from.0, now),
        }
    }

    fn forgettable_at(&self, state: &Self::State) -> Tick {
        self.0.forgettable_at(state)
    }
}

#[test]
fn a_mistake_in_a_set_of_limits_is_seen() {
    for bug in [
        Bug::TakesFromTheFirst,
        Bug::RefundsTheFirst,
        Bug::ChargesTheFirst,
        Bug::ChangesTheFirst,
        Bug::BooksNoTurn,
        Bug::WaitsForTheFirst,
    ] {
        let seen = (0..SEEDS).any(|seed| {
            let two: Vec<Vec<AnyAlgorithm>> = variants(seed);
            let broken = |parts: &[AnyAlgorithm]| Broken(pair(parts), bug);
            let mut random = Random::new(seed);
            differs_from_parts(&two, broken, pair_states, &mut random).is_some()
        });
        assert!(seen, "{bug:?}");
    }
}
