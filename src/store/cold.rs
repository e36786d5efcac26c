//! The operations of an algorithm as the slow paths call them.
//!
//! On the fast path they are inlined. The slow paths call them in many places, so here they are
//! functions: a program contains each of them once per algorithm.

use crate::algorithm::Words;
pub(super) use crate::algorithm::decide_outlined as decide;
use crate::clock::{Clock, Tick};
use crate::decision::Decision;

#[inline(never)]
pub(super) fn now<C: Clock>(clock: &C) -> Tick {
    clock.now()
}

#[inline(never)]
pub(super) fn peek<A: Words>(algorithm: &A, state: &A::State, now: Tick, cost: u64) -> Decision {
    algorithm.peek(state, now, cost)
}

#[inline(never)]
pub(super) fn fresh<A: Words>(algorithm: &A, now: Tick) -> A::State {
    algorithm.fresh(now)
}

#[inline(never)]
pub(super) fn forgettable_at<A: Words>(algorithm: &A, state: &A::State) -> Tick {
    algorithm.forgettable_at(state)
}

#[inline(never)]
pub(super) fn unpack<A: Words>(algorithm: &A, words: &[u64]) -> A::State {
    A::unpack_from(algorithm, words)
}

#[inline(never)]
pub(super) fn pack<A: Words>(algorithm: &A, state: &A::State, words: &mut [u64]) -> bool {
    A::pack_into(algorithm, state, words)
}

#[inline(never)]
pub(super) fn rebase<A: Words>(algorithm: &mut A, now: Tick) {
    A::rebase(algorithm, now);
}
