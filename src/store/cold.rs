//! The operations of an algorithm as the slow paths call them.
//!
//! On the fast path they are inlined. The slow paths call them in many places, so here they are
//! functions: a program contains each of them once per algorithm.

pub(super) use crate::algorithm::decide_outlined as decide;
use crate::algorithm::{Algorithm, Packing};
use crate::clock::{Clock, Tick};
use crate::decision::Decision;

#[inline(never)]
pub(super) fn now<C: Clock>(clock: &C) -> Tick {
    clock.now()
}

#[inline(never)]
pub(super) fn peek<A: Algorithm>(
    algorithm: &A,
    state: &A::State,
    now: Tick,
    cost: u64,
) -> Decision {
    algorithm.peek(state, now, cost)
}

#[inline(never)]
pub(super) fn fresh<A: Algorithm>(algorithm: &A, now: Tick) -> A::State {
    algorithm.fresh(now)
}

#[inline(never)]
pub(super) fn forgettable_at<A: Algorithm>(algorithm: &A, state: &A::State) -> Tick {
    algorithm.forgettable_at(state)
}

#[inline(never)]
pub(super) fn unpack<A: Algorithm>(algorithm: &A, words: &[u64]) -> A::State {
    A::Packing::unpack_from(algorithm, words)
}

#[inline(never)]
pub(super) fn pack<A: Algorithm>(algorithm: &A, state: &A::State, words: &mut [u64]) -> bool {
    A::Packing::pack_into(algorithm, state, words)
}

#[inline(never)]
pub(super) fn rebase<A: Algorithm>(algorithm: &mut A, now: Tick) {
    A::Packing::rebase(algorithm, now);
}
