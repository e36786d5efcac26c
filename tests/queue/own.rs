//! An algorithm of a user that queues requests.

use std::time::Duration;

use tower_throttle::{
    ConfigError, Decision, LeakyBucket, Quota,
    algorithm::{Algorithm, Cost, GiveBack},
    clock::Tick,
};

/// Gives a cost back only to a request whose turn has not come.
#[derive(Clone, Debug)]
pub(crate) struct OwnLine(pub(crate) LeakyBucket);

impl Algorithm for OwnLine {
    type State = <LeakyBucket as Algorithm>::State;

    fn quota(&self) -> Quota {
        self.0.quota()
    }
    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        self.0.with_quota(quota).map(Self)
    }
    fn fresh(&self, now: Tick) -> Self::State {
        self.0.fresh(now)
    }
    fn decide(&self, state: &mut Self::State, now: Tick, cost: u64) -> Decision {
        self.0.decide(state, now, cost)
    }
    fn refund(&self, state: &mut Self::State, now: Tick, cost: Cost, why: GiveBack) {
        if cost.at > now {
            self.0.refund(state, now, cost, why);
        }
    }
    fn charge(&self, state: &mut Self::State, now: Tick, cost: u64) -> Duration {
        self.0.charge(state, now, cost)
    }
    fn rescale(&self, state: &mut Self::State, from: &Self, now: Tick) {
        self.0.rescale(state, &from.0, now);
    }
    fn forgettable_at(&self, state: &Self::State) -> Tick {
        self.0.forgettable_at(state)
    }
}
