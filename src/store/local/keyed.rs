//! A table that decides on each key under a quota of its own.

use std::{sync::Arc, time::Duration};

use super::Local;
use super::inner::LocalInner;
use crate::algorithm::{Algorithm, Capabilities, Cost, GiveBack, IntoAlgorithm};
use crate::clock::{Clock, Tick};
use crate::decision::{Decision, LineCosts};
use crate::error::ConfigError;
use crate::key::Key;
use crate::quota::Quota;
use crate::store::{
    any::any,
    quotas::{QuotaPerKey, UnderQuota, under},
};

/// An algorithm whose states say under which quota they were made.
#[derive(Clone, Debug)]
struct Keyed<A> {
    algorithm: A,
    /// Whether it decides by its own quota: for the key of a request, whose quota is known. Otherwise by that of the
    /// state: for what the table asks of others.
    is_own: bool,
}

/// `None` for an unused key.
type KeyedState<A> = Option<(<A as Algorithm>::State, Quota)>;

impl<A: Algorithm> Keyed<A> {
    fn of(&self, quota: Quota) -> A {
        // Each quota of a state was accepted.
        let of_quota = self.algorithm.with_quota(quota);
        of_quota.unwrap_or_else(|_| self.algorithm.clone())
    }

    /// Runs `run` on a state. What was used under another quota stays used.
    fn on<T>(
        &self,
        state: &mut KeyedState<A>,
        now: Tick,
        run: impl FnOnce(&A, &mut A::State) -> T,
    ) -> T {
        let own = &self.algorithm;
        let (state, quota) = state.get_or_insert_with(|| (own.fresh(now), own.quota()));
        if *quota == own.quota() {
            return run(own, state);
        }
        let before = self.of(*quota);
        if !self.is_own {
            return run(&before, state);
        }
        own.rescale(state, &before, now);
        *quota = own.quota();
        run(own, state)
    }

    fn look<T>(
        &self,
        mut state: KeyedState<A>,
        now: Tick,
        look: impl FnOnce(&A, &A::State) -> T,
    ) -> T {
        self.on(&mut state, now, |algorithm, state| look(algorithm, state))
    }
}

impl<A: Algorithm> Algorithm for Keyed<A> {
    type State = KeyedState<A>;

    fn quota(&self) -> Quota {
        self.algorithm.quota()
    }

    fn capabilities(&self) -> Capabilities {
        self.algorithm.capabilities()
    }

    fn fresh(&self, _: Tick) -> KeyedState<A> {
        None
    }

    fn decide(&self, state: &mut KeyedState<A>, now: Tick, cost: u64) -> Decision {
        self.on(state, now, |own, state| own.decide(state, now, cost))
    }

    fn take_turn(&self, state: &mut KeyedState<A>, at: Tick, cost: u64) -> Decision {
        self.on(state, at, |own, state| own.take_turn(state, at, cost))
    }

    fn peek(&self, state: &KeyedState<A>, now: Tick, cost: u64) -> Decision {
        self.look(state.clone(), now, |own, state| own.peek(state, now, cost))
    }

    fn peek_within(&self, state: &KeyedState<A>, now: Tick, cost: u64, most: Duration) -> Decision {
        self.look(state.clone(), now, |own, state| {
            own.peek_within(state, now, cost, most)
        })
    }

    fn expected_wait(
        &self,
        state: &KeyedState<A>,
        at: Tick,
        costs: LineCosts,
    ) -> Option<[Duration; 2]> {
        self.look(state.clone(), at, |own, state| {
            own.expected_wait(state, at, costs)
        })
    }

    fn refund(&self, state: &mut KeyedState<A>, now: Tick, cost: Cost, why: GiveBack) {
        self.on(state, now, |own, state| own.refund(state, now, cost, why));
    }

    fn charge(&self, state: &mut KeyedState<A>, now: Tick, cost: u64) -> Duration {
        self.on(state, now, |own, state| own.charge(state, now, cost))
    }

    fn forgettable_at(&self, state: &KeyedState<A>) -> Tick {
        let until = |(state, quota): &(A::State, Quota)| self.of(*quota).forgettable_at(state);
        state.as_ref().map_or(Tick::ZERO, until)
    }
}

impl<A: Algorithm, C: Clock, K: Key + 'static> QuotaPerKey<K> for Local<A, C> {
    fn into_quotas(backend: Self) -> Result<UnderQuota<K>, ConfigError> {
        let default = A::clone(&backend.algorithm());
        under(&default, None)?;
        let what = "a quota per key for a table that was used or cloned";
        let (algorithm, size, clock) = backend.unused(what)?;
        let keyed = |algorithm, is_own| Keyed { algorithm, is_own };
        let mut inner = LocalInner::new((keyed(algorithm, false), size, clock));
        inner.rules.is_quick = false;
        let table = Local::from(inner);
        table.allocate();
        Ok(Box::new(move |quota| {
            let own = Some(Arc::new(keyed(under(&default, quota)?, true)));
            Ok(any(Local {
                own,
                ..table.clone()
            }))
        }))
    }
}

/// An algorithm counts in a table in this process.
impl<T: IntoAlgorithm, K: Key + 'static> QuotaPerKey<K> for T {
    fn into_quotas(backend: Self::Backend) -> Result<UnderQuota<K>, ConfigError> {
        <Local<_> as QuotaPerKey<K>>::into_quotas(backend)
    }
}
