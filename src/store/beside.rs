//! Algorithms whose states also hold something that belongs to the machine that keeps them.

use std::{fmt, marker::PhantomData, time::Duration};

use crate::algorithm::{Algorithm, Cost, Facts, GiveBack, Inherit, Portable, Words};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::quota::Quota;

/// The most words of [`Own`].
pub(super) const OWN_WORDS: usize = 2;

/// What a machine keeps beside the state of a key that the fleet shares. It says which decisions need
/// no slow path.
pub(super) trait Own: Copy + Default + fmt::Debug + Send + Sync + 'static {
    /// How many of its words a state has: the first ones.
    const WORDS: usize;
    /// The same if the algorithm has no cells.
    const WORDS_WITHOUT_CELLS: usize;

    /// Whether the state must not be forgotten.
    fn is_kept(&self) -> bool;

    /// The same after `cost` was taken at `now`; `None` if the slow path has to decide.
    fn after(self, now: Tick, cost: u64) -> Option<Self>;

    /// Whether the fast path may admit a request.
    fn may_admit(&self) -> bool;

    /// The same after a request was denied; `None` if the slow path has to decide.
    fn after_denial(self) -> Option<Self>;

    fn to_words(self) -> [u64; OWN_WORDS];

    fn from_words(words: &[u64]) -> Self;
}

/// An algorithm whose states also hold an [`Own`].
#[derive(Clone, Debug)]
pub(super) struct Beside<A, O> {
    pub(super) algorithm: A,
    own: PhantomData<O>,
}

/// The state of a key on one machine.
#[derive(Clone, Debug)]
pub(super) struct BesideState<S, O> {
    /// The state of the fleet, as far as this machine knows it.
    pub(super) fleet: S,
    pub(super) own: O,
}

const fn own_words<A: Portable, O: Own>() -> usize {
    if A::HAS_CELLS {
        O::WORDS
    } else {
        O::WORDS_WITHOUT_CELLS
    }
}

const fn at_most_4(words: usize) -> usize {
    if words < 4 { words } else { 4 }
}

/// The words of the algorithm's state, and those of the machine's own.
#[inline]
fn split<A: Portable, O: Own>(words: &mut [u64]) -> (&mut [u64], &mut [u64]) {
    words.split_at_mut(words.len().saturating_sub(own_words::<A, O>()))
}

#[inline]
fn write<O: Own>(own: O, words: &mut [u64]) {
    for (word, own) in words.iter_mut().zip(own.to_words()) {
        *word = own;
    }
}

impl<A, O> Beside<A, O> {
    pub(super) const fn new(algorithm: A) -> Self {
        Self {
            algorithm,
            own: PhantomData,
        }
    }
}

impl<A: Portable, O: Own> Algorithm for Beside<A, O> {
    type State = BesideState<A::State, O>;

    fn quota(&self) -> Quota {
        self.algorithm.quota()
    }

    #[inline]
    fn facts(&self) -> Facts {
        let facts = self.algorithm.facts();
        Facts {
            words: facts.words + own_words::<A, O>(),
            ..facts
        }
    }

    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        self.algorithm.with_quota(quota).map(Self::new)
    }

    fn fresh(&self, now: Tick) -> Self::State {
        BesideState {
            fleet: self.algorithm.fresh(now),
            own: O::default(),
        }
    }

    /// The table calls it for a key without a slot; see [`Words::decide_packed`] for the others.
    fn decide(&self, state: &mut Self::State, now: Tick, cost: u64) -> Decision {
        self.algorithm.decide(&mut state.fleet, now, cost)
    }

    fn peek(&self, state: &Self::State, now: Tick, cost: u64) -> Decision {
        self.algorithm.peek(&state.fleet, now, cost)
    }

    fn refund(&self, state: &mut Self::State, now: Tick, cost: Cost, why: GiveBack) {
        self.algorithm.refund(&mut state.fleet, now, cost, why);
    }

    fn charge(&self, state: &mut Self::State, now: Tick, cost: u64) -> Duration {
        self.algorithm.charge(&mut state.fleet, now, cost)
    }

    fn rescale(&self, state: &mut Self::State, from: &Self, now: Tick, inherit: Inherit) {
        self.algorithm
            .rescale(&mut state.fleet, &from.algorithm, now, inherit);
    }

    fn forgettable_at(&self, state: &Self::State) -> Tick {
        if state.own.is_kept() {
            Tick::MAX
        } else {
            self.algorithm.forgettable_at(&state.fleet)
        }
    }
}

impl<A: Portable, O: Own> Words for Beside<A, O> {
    const MAX_WORDS: usize = at_most_4(A::MAX_WORDS + own_words::<A, O>());
    const MIN_WORDS: usize = at_most_4(A::MIN_WORDS + own_words::<A, O>());

    fn quotas(&self) -> Vec<Quota> {
        A::quotas(&self.algorithm)
    }

    fn is_blocked(&self, state: &BesideState<A::State, O>, now: Tick) -> bool {
        A::is_blocked(&self.algorithm, &state.fleet, now)
    }

    fn available(&self, state: &BesideState<A::State, O>, now: Tick) -> u64 {
        A::available(&self.algorithm, &state.fleet, now)
    }

    fn heap_bytes(&self, state: &BesideState<A::State, O>) -> usize {
        A::heap_bytes(&self.algorithm, &state.fleet)
    }

    #[inline]
    fn pack_into(&self, state: &BesideState<A::State, O>, words: &mut [u64]) -> bool {
        let (fleet, own) = split::<A, O>(words);
        write(state.own, own);
        !fleet.is_empty() && A::pack_into(&self.algorithm, &state.fleet, fleet)
    }

    #[inline]
    fn unpack_from(&self, words: &[u64]) -> BesideState<A::State, O> {
        let (fleet, own) = words.split_at(words.len().saturating_sub(own_words::<A, O>()));
        BesideState {
            fleet: A::unpack_from(&self.algorithm, fleet),
            own: O::from_words(own),
        }
    }

    fn rebase(&mut self, now: Tick) {
        A::rebase(&mut self.algorithm, now);
    }

    fn raise_to_base(&self, state: &mut BesideState<A::State, O>) {
        A::raise_to_base(&self.algorithm, &mut state.fleet);
    }

    fn disown(&self, state: &mut BesideState<A::State, O>) {
        state.own = O::default();
    }

    fn decide_kept(
        &self,
        state: &mut BesideState<A::State, O>,
        now: Tick,
        cost: u64,
    ) -> Option<Decision> {
        let before = state.own;
        let own = match cost {
            0 => before,
            _ => before.after(now, cost)?,
        };
        let algorithm = &self.algorithm;
        let is_refused = cost > 0 && !own.may_admit();
        if is_refused && !algorithm.peek(&state.fleet, now, cost).is_denied() {
            return None;
        }
        let decision = algorithm.decide(&mut state.fleet, now, cost);
        if decision.is_denied() {
            state.own = before.after_denial()?;
            return Some(decision.hide_from_optimizer());
        }
        state.own = own;
        Some(decision.hide_from_optimizer())
    }

    #[expect(clippy::inline_always, reason = "as in the trait")]
    #[inline(always)]
    fn decide_packed(&self, words: &mut [u64], now: Tick, cost: u64) -> Option<Decision> {
        let (fleet, words) = split::<A, O>(words);
        let before = O::from_words(words);
        let mut own = before;
        if cost > 0 {
            own = own.after(now, cost)?;
        }
        let decision = A::decide_packed(&self.algorithm, fleet, now, cost)?;
        if decision.is_denied() {
            write(before.after_denial()?, words);
            return Some(decision);
        }
        if cost > 0 && !own.may_admit() {
            return None;
        }
        write(own, words);
        Some(decision)
    }
}
