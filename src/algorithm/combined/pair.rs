//! A pair of limits of different kinds.

use super::super::math::MAX_WORDS;
use super::super::{Algorithm, Inherit, Packing};
use super::parts::{
    MakeState, Parts, VisitPart, VisitPartMut, VisitState, VisitStateMut, unsupported,
};
use crate::clock::Tick;
use crate::error::ConfigError;
use crate::quota::Quota;

impl<A: Algorithm, B: Algorithm> Parts for (A, B) {
    type States = (A::State, B::State);

    const MAX_WORDS: usize = {
        let both = A::Packing::MAX_WORDS + B::Packing::MAX_WORDS;
        if both < MAX_WORDS { both } else { MAX_WORDS }
    };
    const MIN_WORDS: usize = A::Packing::MIN_WORDS + B::Packing::MIN_WORDS;

    #[inline]
    fn each(&self, visitor: &mut impl VisitPart) {
        visitor.visit(&self.0);
        visitor.visit(&self.1);
    }

    fn each_mut(&mut self, visitor: &mut impl VisitPartMut) {
        visitor.visit(&mut self.0);
        visitor.visit(&mut self.1);
    }

    #[inline]
    fn each_state(&self, states: &Self::States, visitor: &mut impl VisitState) {
        visitor.visit(&self.0, &states.0);
        visitor.visit(&self.1, &states.1);
    }

    #[inline]
    fn each_state_mut(&self, states: &mut Self::States, visitor: &mut impl VisitStateMut) {
        visitor.visit(&self.0, &mut states.0);
        visitor.visit(&self.1, &mut states.1);
    }

    #[inline]
    fn make(&self, maker: &mut impl MakeState) -> Self::States {
        (maker.make(&self.0), maker.make(&self.1))
    }

    fn rescale_each(&self, states: &mut Self::States, from: &Self, now: Tick, inherit: Inherit) {
        self.0.rescale(&mut states.0, &from.0, now, inherit);
        self.1.rescale(&mut states.1, &from.1, now, inherit);
    }

    #[inline]
    fn is_complete(&self, _: &Self::States) -> bool {
        true
    }

    fn own_heap_bytes(&self, _: &Self::States) -> usize {
        0
    }

    fn own_max_heap_bytes(&self) -> usize {
        0
    }

    fn with_single_quota(&self, _: Quota) -> Result<Self, ConfigError> {
        Err(unsupported())
    }
}
