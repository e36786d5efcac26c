//! What a full table does, and the state that keys without a slot share.

use std::sync::Arc;

use super::overflow::{Counters, Overflow};
use crate::algorithm::Algorithm;
use crate::clock::Tick;
use crate::sync::{Mutex, lock};

/// What runs on a state: returns whether a request was denied. It may run several times and must depend
/// on nothing but its arguments.
pub(super) type Step<'a, A> = dyn FnMut(&A, &mut <A as Algorithm>::State) -> Option<bool> + 'a;

/// What a full table does, and what it has done.
#[derive(Debug)]
pub(super) struct Rules<A: Algorithm> {
    pub(super) overflow: Overflow,
    pub(super) counters: Counters,
    pub(super) is_user_code: bool,
    /// The state that all keys without a slot share ([`Overflow::Shared`]), and the algorithm that has
    /// made it.
    shared: Mutex<Option<(Arc<A>, A::State)>>,
}

impl<A: Algorithm> Rules<A> {
    pub(super) fn new(algorithm: &A, overflow: Overflow) -> Self {
        Self {
            overflow,
            counters: Counters::default(),
            is_user_code: algorithm.capabilities().is_user_code,
            shared: Mutex::new(None),
        }
    }

    /// Runs `step` on the state shared by all keys without a slot: on a copy, so that a panic changes
    /// nothing.
    pub(super) fn run_shared(&self, algorithm: &Arc<A>, now: Tick, step: &mut Step<'_, A>) {
        let mut shared = lock(&self.shared);
        let copy = shared.clone();
        let (algorithm, mut state) =
            copy.unwrap_or_else(|| (Arc::clone(algorithm), algorithm.fresh(now)));
        step(&algorithm, &mut state);
        *shared = Some((algorithm, state));
        self.counters.count(|counters| &counters.shared, now);
    }

    /// The state that keys share.
    pub(super) fn shared(&self) -> Option<A::State> {
        lock(&self.shared).as_ref().map(|(_, state)| state.clone())
    }

    /// Sets the state that keys share, which `algorithm` has made.
    pub(super) fn share(&self, algorithm: Arc<A>, state: A::State) {
        *lock(&self.shared) = Some((algorithm, state));
    }

    /// Converts the shared state, after those of all shards: keys of the others may use it until then.
    pub(super) fn rescale_shared(&self, new: &Arc<A>, now: Tick) {
        let mut shared = lock(&self.shared);
        if let Some((algorithm, mut state)) = shared.clone() {
            new.rescale(&mut state, &algorithm, now);
            *shared = Some((Arc::clone(new), state));
        }
    }
}
