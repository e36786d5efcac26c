//! The parts of several limits, visited one after the other.

use std::fmt;

use super::super::{Algorithm, Inherit};
use crate::clock::Tick;
use crate::error::ConfigError;
use crate::quota::Quota;

/// Several algorithms that decide together. Sealed: pairs and [`All`](super::All).
#[expect(unnameable_types, reason = "sealed")]
pub trait Parts: Clone + fmt::Debug + Send + Sync + 'static {
    /// The states of the parts.
    type States: Clone + fmt::Debug + Send + Sync + 'static;

    /// See [`Packing::MAX_WORDS`](super::super::Packing::MAX_WORDS).
    const MAX_WORDS: usize;

    /// See [`Packing::MIN_WORDS`](super::super::Packing::MIN_WORDS).
    const MIN_WORDS: usize;

    /// Visits each part.
    fn each(&self, visitor: &mut impl VisitPart);

    /// Visits each part, which the visitor may change.
    fn each_mut(&mut self, visitor: &mut impl VisitPartMut);

    /// Visits each part with its state.
    fn each_state(&self, states: &Self::States, visitor: &mut impl VisitState);

    /// Visits each part with its state, which the visitor may change.
    fn each_state_mut(&self, states: &mut Self::States, visitor: &mut impl VisitStateMut);

    /// A state for each part.
    fn make(&self, maker: &mut impl MakeState) -> Self::States;

    /// Turns the states made by `from` into states of these parts.
    fn rescale_each(&self, states: &mut Self::States, from: &Self, now: Tick, inherit: Inherit);

    /// Whether there is one state for each part.
    fn is_complete(&self, states: &Self::States) -> bool;

    /// The bytes that `states` has allocated for the states themselves.
    fn own_heap_bytes(&self, states: &Self::States) -> usize;

    /// The same for the states that [`make`](Self::make) returns.
    fn own_max_heap_bytes(&self) -> usize;

    /// The same parts for another quota, if there is only one part.
    fn with_single_quota(&self, quota: Quota) -> Result<Self, ConfigError>;
}

#[expect(unnameable_types, reason = "an argument of a sealed trait")]
pub trait VisitPart {
    fn visit<A: Algorithm>(&mut self, part: &A);
}

#[expect(unnameable_types, reason = "an argument of a sealed trait")]
pub trait VisitPartMut {
    fn visit<A: Algorithm>(&mut self, part: &mut A);
}

#[expect(unnameable_types, reason = "an argument of a sealed trait")]
pub trait VisitState {
    fn visit<A: Algorithm>(&mut self, part: &A, state: &A::State);
}

#[expect(unnameable_types, reason = "an argument of a sealed trait")]
pub trait VisitStateMut {
    fn visit<A: Algorithm>(&mut self, part: &A, state: &mut A::State);
}

#[expect(unnameable_types, reason = "an argument of a sealed trait")]
pub trait MakeState {
    fn make<A: Algorithm>(&mut self, part: &A) -> A::State;
}

pub(super) fn unsupported() -> ConfigError {
    ConfigError::Unsupported {
        what: "one quota for a set of several limits",
        instead: "set a new algorithm with set_algorithm",
    }
}
