//! `Backend` for limits with a plan per key, and the tasks of their lookups.

use std::{mem, sync::Arc};

use tokio::runtime::Handle;

use super::{
    PerKey, PerKeyDecision, PlanSource, Shared, SourceKey, Tried,
    lookups::{Joined, Lookup, OVERDUE, Terms},
    planned::{Planned, PlannedState},
};
use crate::acquire::{OneKey, Outcome};
use crate::algorithm::Algorithm;
use crate::backend::{Backend, IntoBackend, Losses, Op};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::decision::Decision;
use crate::key::Key;
use crate::quota::{Plan, Quota};
use crate::receipt::Receipt;
use crate::store::deadline::within;

/// Ends a lookup, whatever becomes of its task.
struct Finish<A: Algorithm, S> {
    shared: Arc<Shared<A, S>>,
    hash: u64,
    lookup: Arc<Lookup<A>>,
    found: Result<Terms<A>, String>,
}

impl<A: Algorithm, S> Drop for Finish<A, S> {
    fn drop(&mut self) {
        let found = mem::replace(&mut self.found, Err(String::new()));
        self.shared.finish(self.hash, &self.lookup, found);
    }
}

impl<A: Algorithm, S> Shared<A, S> {
    fn finish(&self, hash: u64, lookup: &Arc<Lookup<A>>, found: Result<Terms<A>, String>) {
        let now = self.table.shared.clock.now();
        let store = |found: Option<&Terms<A>>, is_outdated| {
            let until = if is_outdated {
                now
            } else {
                self.fresh_until(found.is_some(), now)
            };
            // Without a slot, each request that waits assigns the plan itself.
            let _ = self.table.at(hash).run(now, true, |_, state| {
                state.assign(hash, (found, until), &self.default, now);
            });
        };
        self.lookups.finish(hash, lookup, found, store);
    }

    /// What the lookup has found when it ends. A request that still waits at its deadline ends it.
    pub(super) async fn found(&self, hash: u64, lookup: &Arc<Lookup<A>>) -> Option<Terms<A>> {
        let Some(found) = lookup.ended().await else {
            self.finish(hash, lookup, Err(OVERDUE.to_owned()));
            return None;
        };
        found.ok()
    }

    /// Asks the source about `key`.
    async fn ask<K>(&self, key: Option<K>, deadline: Tick) -> Result<Terms<A>, String>
    where
        S: PlanSource<K>,
    {
        let Some(key) = key else {
            return self.terms(Plan::Default);
        };
        // The runtime may be driven again when nobody waits any more.
        if MonotonicClock.now() >= deadline {
            return Err(OVERDUE.to_owned());
        }
        match within(deadline, self.source.plan(&key)).await {
            Some(Ok(plan)) => self.terms(plan),
            Some(Err(error)) => Err(error.to_string()),
            None => Err(OVERDUE.to_owned()),
        }
    }
}

impl<A, K, S, P> PerKey<A, K, S, P>
where
    A: Algorithm,
    K: Send + Sync + 'static,
    S: PlanSource<K>,
{
    /// The lookup of `key`: the one in flight, or one that begins. `None` if it cannot begin.
    pub(super) fn look_up<Q>(&self, hash: u64, key: &Q) -> Option<Arc<Lookup<A>>>
    where
        Q: SourceKey<K> + ?Sized,
    {
        let lookups = &self.shared.lookups;
        let Ok(runtime) = Handle::try_current() else {
            lookups.record_failure("no tokio runtime runs the lookup");
            return None;
        };
        let lookup = match lookups.join(hash, self.shared.times.deadline) {
            Joined::Full => return None,
            Joined::Running(lookup) => return Some(lookup),
            Joined::New(lookup) => lookup,
        };
        let mut finish = Finish {
            shared: Arc::clone(&self.shared),
            hash,
            lookup: Arc::clone(&lookup),
            found: Err("the source panicked or its runtime has ended".to_owned()),
        };
        let key = key.source_key();
        runtime.spawn(async move {
            let shared = Arc::clone(&finish.shared);
            finish.found = shared.ask(key, finish.lookup.deadline).await;
            drop(finish);
        });
        Some(lookup)
    }
}

impl<A, K, S, Q> Backend<Q> for PerKey<A, K, S>
where
    A: Algorithm,
    K: Send + Sync + 'static,
    S: PlanSource<K>,
    Q: Key + SourceKey<K> + ?Sized,
{
    type Future = PerKeyDecision;

    fn apply(&self, key: &Q, op: Op) -> PerKeyDecision {
        let shared = &self.shared;
        let hash = shared.table.hash(key);
        // These need no plan: they concern what was taken under that of the key.
        if !matches!(
            op,
            Op::Take(_) | Op::Reserve { .. } | Op::Peek(_) | Op::PeekOf(..) | Op::Charge(_)
        ) {
            return PerKeyDecision::ready(shared.table.at(hash).apply(op));
        }
        let now = shared.table.shared.clock.now();
        let tried = shared.try_apply(hash, op, now);
        match tried {
            Ok(Tried::Unknown) => {}
            decided => {
                if let Ok(Tried::Decided {
                    refreshes: true, ..
                }) = decided
                {
                    let _ = self.look_up(hash, key);
                }
                return PerKeyDecision::ready(shared.decided(&decided, now));
            }
        }
        let Some(lookup) = self.look_up(hash, key) else {
            return PerKeyDecision::ready(shared.apply_found(hash, op, None));
        };
        let shared = Arc::clone(shared);
        PerKeyDecision::pending(async move {
            let found = shared.found(hash, &lookup).await;
            shared.apply_found(hash, op, found.as_ref())
        })
    }

    /// A charge that has to wait for the plan is made in a task.
    fn detach(&self, key: &Q, op: Op) {
        let deciding = self.apply(key, op);
        if let (true, Ok(runtime)) = (deciding.is_pending(), Handle::try_current()) {
            runtime.spawn(deciding);
        }
    }

    fn take_turn(&self, key: &Q, cost: u64, at: Tick) -> Option<Decision> {
        let table = &self.shared.table;
        let (hash, at) = (table.hash(key), table.shared.clock.at(at));
        let taken = table.at(hash).run(at, true, |_, state| {
            let known = state.of(hash)?;
            if known.algorithm.capabilities().counts_denials {
                return None;
            }
            let turn = known.plan.decide(Op::Take(cost));
            let own = || known.algorithm.take_turn(&mut known.state, at, cost);
            Some(turn.unwrap_or_else(own))
        });
        let decision = taken.unwrap_or_else(|full| Some(table.at(hash).deny(full, at)))?;
        Some(decision.with_receipt(Receipt::at(at.as_nanos())))
    }

    fn current_decision(&self, key: &Q, cost: u64) -> Option<Decision> {
        let shared = &self.shared;
        let now = shared.table.shared.clock.now();
        let tried = shared.try_apply(shared.table.hash(key), Op::Peek(cost), now);
        match tried {
            Ok(Tried::Decided { decision, .. }) => Some(decision),
            _ => None,
        }
    }

    fn losses(&self) -> Losses {
        self.shared.table.shared.rules.counters.losses()
    }

    /// The default.
    fn quotas(&self) -> Vec<Quota> {
        vec![self.shared.default.quota()]
    }

    fn plan_of(&self, key: &Q) -> Option<Plan> {
        let shared = &self.shared;
        let (hash, now) = (shared.table.hash(key), shared.table.shared.clock.now());
        Some(shared.plan_of(hash, now))
    }
}

impl<A: Algorithm, S> Shared<A, S> {
    /// The plan that the key with this hash is under, or the default.
    pub(super) fn plan_of(&self, hash: u64, now: Tick) -> Plan {
        let read = |_: &Planned<A>, state: &mut PlannedState<A>| {
            ReadPlan(state.of(hash).map(|known| known.plan))
        };
        let known = self.table.at(hash).run(now, false, read).ok();
        known
            .and_then(|ReadPlan(plan)| plan)
            .unwrap_or_else(|| Plan::Quota(self.default.quota()))
    }
}

struct ReadPlan(Option<Plan>);

impl Outcome for ReadPlan {}

impl<A: Algorithm, K, S, P> IntoBackend for PerKey<A, K, S, P>
where
    K: 'static,
    S: Send + Sync + 'static,
    P: Send + Sync + 'static,
{
    type Backend = Self;

    fn into_backend(self) -> Self {
        self.shared.table.allocate();
        self
    }

    fn queues(backend: &Self) -> bool {
        backend.shared.default.capabilities().queue > 0
    }
}
