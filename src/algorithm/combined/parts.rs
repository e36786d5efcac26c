//! What is combined: a list of limits of one kind, or a tuple of limits of different kinds.

use std::{cmp::Ordering, fmt};

use crate::algorithm::{
    Algorithm,
    any::{DynAlgorithm, DynState},
};
use crate::clock::Tick;
use crate::decision::{Decision, Verdict};

/// The limits of an [`All`](crate::All): a list of one kind, or a tuple of two to four.
pub trait Parts: Clone + fmt::Debug + Send + Sync + 'static {
    /// The state of each.
    type State: Clone + fmt::Debug + Send + Sync + 'static;
}

pub(super) type AnyPart = dyn DynAlgorithm;
type PartState = dyn DynState;

/// The limits as a slice would have them.
pub(super) trait Each: Parts {
    fn fresh(&self, now: Tick) -> Self::State;

    /// Gives each limit a state: what is missing is fresh.
    fn complete(&self, _state: &mut Self::State, _now: Tick) {}

    fn all(&self) -> impl Iterator<Item = &AnyPart>;

    fn all_mut(&mut self) -> impl Iterator<Item = &mut AnyPart>;

    fn states(state: &Self::State) -> impl Iterator<Item = &PartState>;

    fn states_mut(state: &mut Self::State) -> impl Iterator<Item = &mut PartState>;

    /// Each limit with its state.
    #[inline]
    fn each<'a>(
        &'a self,
        state: &'a Self::State,
    ) -> impl Iterator<Item = (&'a AnyPart, &'a PartState)> {
        self.all().zip(Self::states(state))
    }

    #[inline]
    fn each_mut<'a>(
        &'a self,
        state: &'a mut Self::State,
    ) -> impl Iterator<Item = (&'a AnyPart, &'a mut PartState)> {
        self.all().zip(Self::states_mut(state))
    }

    /// The decision of all limits, given that of each. Without any everything is admitted.
    #[inline]
    fn merged(&self, decisions: impl Iterator<Item = Decision>) -> Decision {
        let mut limits = 0;
        let numbered = self.all().zip(decisions).map(|(part, mut decision)| {
            decision.policy += limits;
            limits += part.capabilities().limits;
            decision
        });
        let nothing = || Decision::new(Verdict::Admit, u64::MAX, u64::MAX, None, 0);
        numbered.reduce(merge).unwrap_or_else(nothing)
    }
}

impl<P: Algorithm> Parts for Vec<P> {
    type State = Box<[P::State]>;
}

impl<P: Algorithm> Each for Vec<P> {
    fn fresh(&self, now: Tick) -> Box<[P::State]> {
        let parts = self.iter();
        parts.map(|part| Algorithm::fresh(part, now)).collect()
    }

    fn complete(&self, state: &mut Box<[P::State]>, now: Tick) {
        let kept = std::mem::take(state);
        let missing = self.iter().skip(kept.len());
        let fresh = missing.map(|part| Algorithm::fresh(part, now));
        *state = kept.into_iter().take(self.len()).chain(fresh).collect();
    }

    fn all(&self) -> impl Iterator<Item = &AnyPart> {
        self.iter().map(|part| part as &AnyPart)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut AnyPart> {
        self.iter_mut().map(|part| part as &mut AnyPart)
    }

    fn states(state: &Box<[P::State]>) -> impl Iterator<Item = &PartState> {
        state.iter().map(|state| state as &PartState)
    }

    fn states_mut(state: &mut Box<[P::State]>) -> impl Iterator<Item = &mut PartState> {
        state.iter_mut().map(|state| state as &mut PartState)
    }
}

macro_rules! tuples {
    ($($name:ident $at:tt),*) => {
        impl<$($name: Algorithm),*> Parts for ($($name),*) {
            type State = ($($name::State),*);
        }

        impl<$($name: Algorithm),*> Each for ($($name),*) {
            fn fresh(&self, now: Tick) -> Self::State {
                ($(Algorithm::fresh(&self.$at, now)),*)
            }

            #[inline]
            fn all(&self) -> impl Iterator<Item = &AnyPart> {
                [$(&self.$at as &AnyPart),*].into_iter()
            }

            fn all_mut(&mut self) -> impl Iterator<Item = &mut AnyPart> {
                [$(&mut self.$at as &mut AnyPart),*].into_iter()
            }

            #[inline]
            fn states(state: &Self::State) -> impl Iterator<Item = &PartState> {
                [$(&state.$at as &PartState),*].into_iter()
            }

            #[inline]
            fn states_mut(state: &mut Self::State) -> impl Iterator<Item = &mut PartState> {
                [$(&mut state.$at as &mut PartState),*].into_iter()
            }
        }
    };
}

tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);

/// The decision of two limits. All figures are those of the limit that binds; an accepted request
/// waits for the longer of both waits.
#[inline]
pub(crate) fn merge(first: Decision, second: Decision) -> Decision {
    let (mut binding, other) = if binds_more(&second, &first) {
        (second, first)
    } else {
        (first, second)
    };
    if let (Some(wait), Some(longer)) = (binding.wait(), other.wait()) {
        if longer > wait {
            binding.verdict = Verdict::Wait(longer);
        }
    }
    binding
}

/// Whether `a` binds rather than `b`, which comes first in the list.
///
/// A denial binds rather than an admission. Of two denials the one that ends later binds, or never
/// ends. Of two admissions the one with less room relative to its limit binds, and if that is
/// equal, the one that takes longer to reset.
fn binds_more(a: &Decision, b: &Decision) -> bool {
    match (a.is_denied(), b.is_denied()) {
        (true, true) => match (a.retry_after, b.retry_after) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(a), Some(b)) => a > b,
        },
        (false, false) => match relative_room(a, b) {
            Ordering::Less => true,
            Ordering::Equal => a.reset_after > b.reset_after,
            Ordering::Greater => false,
        },
        (a_denied, _) => a_denied,
    }
}

/// Compares `remaining / limit`, without dividing.
fn relative_room(a: &Decision, b: &Decision) -> Ordering {
    let cross =
        |one: &Decision, other: &Decision| u128::from(one.remaining()) * u128::from(other.limit);
    cross(a, b).cmp(&cross(b, a))
}
