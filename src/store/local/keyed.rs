//! A table that decides on each key under a quota of its own.

use std::{future::Ready, future::ready, hash::BuildHasher, time::Duration};

use super::inner::{DEFAULT_CAPACITY, LocalInner};
use super::{Entry, Local};
use crate::acquire::{OneKey, Outcome};
use crate::algorithm::{Algorithm, Capabilities, Cost, GiveBack, IntoAlgorithm, Report};
use crate::backend::{Backend, Fullness, Losses, Op};
use crate::clock::{Clock, Tick};
use crate::decision::Decision;
use crate::error::{ConfigError, StoreError};
use crate::key::Key;
use crate::quota::Quota;
use crate::receipt::Receipt;
use crate::store::{
    any::any,
    apply::apply_to,
    quotas::{QuotaPerKey, UnderQuota, under},
};

/// An algorithm whose states say under which quota they were made; `None` for an unused key.
#[derive(Clone, Debug)]
struct Keyed<A>(A);

type KeyedState<A> = Option<(<A as Algorithm>::State, Quota)>;

impl<A: Algorithm> Keyed<A> {
    fn own(&self, quota: Quota) -> A {
        // Each quota of a state was accepted.
        self.0.with_quota(quota).unwrap_or_else(|_| self.0.clone())
    }

    /// The state as one of `own`: what was used stays used.
    fn state_of<'s>(&self, own: &A, state: &'s mut KeyedState<A>, now: Tick) -> &'s mut A::State {
        let quota = own.quota();
        let (state, before) = state.get_or_insert_with(|| (own.fresh(now), quota));
        if *before != quota {
            own.rescale(state, &self.own(*before), now);
            *before = quota;
        }
        state
    }

    /// Runs `run` on a state under its own quota.
    fn with_own<T>(
        &self,
        state: &mut KeyedState<A>,
        now: Tick,
        run: impl FnOnce(&A, &mut A::State) -> T,
    ) -> T {
        let own = state.as_ref().map(|(_, quota)| self.own(*quota));
        let own = own.as_ref().unwrap_or(&self.0);
        run(own, self.state_of(own, state, now))
    }
}

/// What a table asks of states whose keys it does not know.
impl<A: Algorithm> Algorithm for Keyed<A> {
    type State = KeyedState<A>;

    fn quota(&self) -> Quota {
        self.0.quota()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn fresh(&self, _: Tick) -> KeyedState<A> {
        None
    }

    fn decide(&self, state: &mut KeyedState<A>, now: Tick, cost: u64) -> Decision {
        self.with_own(state, now, |own, state| own.decide(state, now, cost))
    }

    fn refund(&self, state: &mut KeyedState<A>, now: Tick, cost: Cost, why: GiveBack) {
        self.with_own(state, now, |own, state| own.refund(state, now, cost, why));
    }

    fn charge(&self, state: &mut KeyedState<A>, now: Tick, cost: u64) -> Duration {
        self.with_own(state, now, |own, state| own.charge(state, now, cost))
    }

    fn forgettable_at(&self, state: &KeyedState<A>) -> Tick {
        let until = |(state, quota): &(A::State, Quota)| self.own(*quota).forgettable_at(state);
        state.as_ref().map_or(Tick::ZERO, until)
    }

    fn report(&self, state: &KeyedState<A>, now: Tick) -> Report {
        self.with_own(&mut state.clone(), now, |own, state| own.report(state, now))
    }
}

/// A table under one of its quotas.
struct Under<A: Algorithm, C, S> {
    table: Local<Keyed<A>, C, S>,
    own: A,
}

/// One key of it.
struct UnderEntry<'a, A: Algorithm, C, S> {
    entry: Entry<'a, Keyed<A>, C, S>,
    own: &'a A,
}

impl<A: Algorithm, C: Clock, S: BuildHasher> Under<A, C, S> {
    fn entry<K: Key>(&self, key: &K) -> UnderEntry<'_, A, C, S> {
        UnderEntry {
            entry: self.table.entry(key),
            own: &self.own,
        }
    }
}

impl<A: Algorithm, C: Clock, S> OneKey for UnderEntry<'_, A, C, S> {
    type Algorithm = A;
    type Clock = C;
    type Full = Tick;

    fn clock(&self) -> &C {
        self.entry.clock()
    }

    fn run<T: Outcome>(
        &self,
        now: Tick,
        keep: bool,
        step: impl Fn(&A, &mut A::State) -> T,
    ) -> Result<T, Tick> {
        self.entry.run(now, keep, |keyed, state| {
            step(self.own, keyed.state_of(self.own, state, now))
        })
    }

    fn deny(&self, free: Tick, now: Tick) -> Decision {
        self.entry.deny(free, now)
    }

    fn lose(&self, free: Tick, now: Tick) {
        self.entry.lose(free, now);
    }
}

impl<A, C, S, K> Backend<K> for Under<A, C, S>
where
    A: Algorithm,
    C: Clock,
    S: BuildHasher + Send + Sync + 'static,
    K: Key,
{
    type Future = Ready<Result<Decision, StoreError>>;

    fn apply(&self, key: &K, op: Op) -> Self::Future {
        let own = self.entry(key);
        ready(Ok(apply_to(&own, op, || own.entry.remove())))
    }

    fn take_turn(&self, key: &K, cost: u64, at: Tick) -> Option<Decision> {
        if self.own.capabilities().counts_denials {
            return None;
        }
        let own = self.entry(key);
        let at = own.clock().at(at);
        let decision = own.take_turn(at, cost)?;
        Some(decision.with_receipt(Receipt::at(at.as_nanos())))
    }

    fn expected_wait(&self, key: &K, ahead: u64, cost: u64, at: Tick) -> Option<Duration> {
        let own = self.entry(key);
        own.expected_wait(own.clock().at(at), ahead, cost)
    }

    fn current_decision(&self, key: &K, cost: u64) -> Option<Decision> {
        Some(self.entry(key).peek(cost))
    }

    fn quotas(&self) -> Vec<Quota> {
        vec![self.own.quota()]
    }

    fn losses(&self) -> Losses {
        Backend::<K>::losses(&self.table)
    }

    fn fullness(&self) -> Option<Fullness> {
        Backend::<K>::fullness(&self.table)
    }
}

impl<A, C, S, K> QuotaPerKey<K> for Local<A, C, S>
where
    A: Algorithm,
    C: Clock,
    S: BuildHasher + Send + Sync + 'static,
    K: Key + 'static,
{
    const DECIDES_AT_ONCE: bool = true;

    fn into_quotas(self) -> Result<UnderQuota<K>, ConfigError> {
        let default = self.algorithm();
        under(&default, None)?;
        let what = "a quota per key for a table that was used or cloned";
        let (_, size, clock, hasher) = self.unused(what)?;
        let table = LocalInner::new((Keyed(default.clone()), size, clock, hasher));
        let table = Local::from(table);
        table.allocate();
        Ok(Box::new(move |quota| {
            let (table, own) = (table.clone(), under(&default, quota)?);
            Ok(any(Under { table, own }))
        }))
    }
}

/// An algorithm counts in a table in this process.
impl<T: IntoAlgorithm, K: Key + 'static> QuotaPerKey<K> for T {
    const DECIDES_AT_ONCE: bool = true;

    fn into_quotas(self) -> Result<UnderQuota<K>, ConfigError> {
        let algorithm = self.into_algorithm();
        algorithm.validate()?;
        Local::of_size(algorithm, DEFAULT_CAPACITY).into_quotas()
    }
}
