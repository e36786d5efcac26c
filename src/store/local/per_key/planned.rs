//! The state of a key together with the plan that it is under.

use std::{sync::Arc, time::Duration};

use super::lookups::Terms;
use crate::algorithm::{Algorithm, Capabilities, Cost, GiveBack, Report};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::quota::{Plan, Quota};

/// An algorithm whose states say which plan they are under. It is the one of keys whose plan is not
/// known.
#[derive(Clone, Debug)]
pub(super) struct Planned<A> {
    pub(super) default: Arc<A>,
    /// How long a plan is kept after it has become stale.
    pub(super) stale: Duration,
}

/// The state of a key. `None` until its plan was looked up.
#[derive(Clone, Debug)]
pub(super) struct PlannedState<A: Algorithm>(pub(super) Option<Known<A>>);

#[derive(Clone, Debug)]
pub(super) struct Known<A: Algorithm> {
    /// The hash of the key. If a table is full, a new key takes over the state of another one, but not
    /// its plan.
    pub(super) owner: u64,
    /// Never the default: that is a quota here.
    pub(super) plan: Plan,
    /// With the quota of the plan, or the last one before it.
    pub(super) algorithm: Arc<A>,
    pub(super) fresh_until: Tick,
    pub(super) state: A::State,
}

impl<A: Algorithm> Known<A> {
    /// Whether the plan is stale. If so the caller has to refresh it, and no other one does before
    /// `claimed_until`.
    pub(super) fn claim_refresh(&mut self, now: Tick, claimed_until: Tick) -> bool {
        let is_stale = self.fresh_until <= now;
        if is_stale {
            self.fresh_until = claimed_until;
        }
        is_stale
    }
}

impl<A: Algorithm> PlannedState<A> {
    /// The state of the key with this hash, if its plan is known.
    pub(super) fn of(&mut self, owner: u64) -> Option<&mut Known<A>> {
        self.0.as_mut().filter(|known| known.owner == owner)
    }

    /// Puts the key under the plan that was found. If the lookup failed, it stays under its own, or
    /// else gets the default.
    pub(super) fn assign(
        &mut self,
        owner: u64,
        (found, fresh_until): (Option<&Terms<A>>, Tick),
        default: &Arc<A>,
        now: Tick,
    ) -> &mut Known<A> {
        let is_own = self.of(owner).is_some();
        let known = self.0.get_or_insert_with(|| {
            let found = found.and_then(|(_, algorithm)| algorithm.as_ref());
            let algorithm = Arc::clone(found.unwrap_or(default));
            Known {
                owner,
                plan: Plan::Quota(default.quota()),
                fresh_until,
                state: algorithm.fresh(now),
                algorithm,
            }
        });
        let (old_plan, old) = if is_own {
            (known.plan, &known.algorithm)
        } else {
            (Plan::Quota(default.quota()), default)
        };
        let (plan, next) = match found {
            Some((plan, next)) => (*plan, next.as_ref().unwrap_or(old)),
            None => (old_plan, old),
        };
        let next = Arc::clone(next);
        if next.quota() != known.algorithm.quota() {
            next.rescale(&mut known.state, &known.algorithm, now);
        }
        (known.owner, known.plan, known.algorithm) = (owner, plan, next);
        known.fresh_until = fresh_until;
        known
    }
}

impl<A: Algorithm> Planned<A> {
    /// Runs `run` on the state of a key, under its own quota. Without one there is nothing to change.
    fn with_own<T>(
        &self,
        PlannedState(state): &mut PlannedState<A>,
        now: Tick,
        run: impl FnOnce(&A, &mut A::State) -> T,
    ) -> T {
        match state {
            Some(known) => run(&known.algorithm, &mut known.state),
            None => run(&self.default, &mut self.default.fresh(now)),
        }
    }
}

impl<A: Algorithm> Algorithm for Planned<A> {
    type State = PlannedState<A>;

    fn quota(&self) -> Quota {
        self.default.quota()
    }

    fn capabilities(&self) -> Capabilities {
        let facts = self.default.capabilities();
        Capabilities {
            max_heap_bytes: facts.max_heap_bytes.saturating_add(size_of::<A>()),
            ..facts
        }
    }

    fn fresh(&self, _: Tick) -> PlannedState<A> {
        PlannedState(None)
    }

    fn decide(&self, state: &mut PlannedState<A>, now: Tick, cost: u64) -> Decision {
        self.with_own(state, now, |own, state| own.decide(state, now, cost))
    }

    fn refund(&self, state: &mut PlannedState<A>, now: Tick, cost: Cost, why: GiveBack) {
        self.with_own(state, now, |own, state| own.refund(state, now, cost, why));
    }

    fn charge(&self, state: &mut PlannedState<A>, now: Tick, cost: u64) -> Duration {
        self.with_own(state, now, |own, state| own.charge(state, now, cost))
    }

    fn forgettable_at(&self, PlannedState(state): &PlannedState<A>) -> Tick {
        state.as_ref().map_or(Tick::ZERO, |known| {
            let used_until = known.algorithm.forgettable_at(&known.state);
            used_until.max(known.fresh_until.plus(self.stale))
        })
    }

    fn report(&self, PlannedState(state): &PlannedState<A>, now: Tick) -> Report {
        let mut report = match state {
            Some(known) => known.algorithm.report(&known.state, now),
            None => self.default.report(&self.default.fresh(now), now),
        };
        report.heap_bytes += size_of::<A>();
        report
    }
}
