//! Requests that an algorithm of a user queues.

use std::time::Duration;

use tower_throttle::{
    AsError, ConfigError, Decision, LeakyBucket, Quota, RateLimitLayer,
    algorithm::{Algorithm, Inherit, NotPacked},
    clock::Tick,
    queue::Order,
};

use crate::support::{Harness, key, pass};

/// Gives a cost back only to a request whose turn has not come.
#[derive(Clone, Debug)]
struct OwnLine(LeakyBucket);

impl Algorithm for OwnLine {
    type State = <LeakyBucket as Algorithm>::State;
    type Packing = NotPacked;

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
    fn refund(&self, state: &mut Self::State, taken_at: Tick, now: Tick, cost: u64) {
        if taken_at > now {
            self.0.refund(state, taken_at, now, cost);
        }
    }
    fn charge(&self, state: &mut Self::State, now: Tick, cost: u64) -> Duration {
        self.0.charge(state, now, cost)
    }
    fn rescale(&self, state: &mut Self::State, from: &Self, now: Tick, inherit: Inherit) {
        self.0.rescale(state, &from.0, now, inherit);
    }
    fn forgettable_at(&self, state: &Self::State) -> Tick {
        self.0.forgettable_at(state)
    }
}

#[tokio::test(start_paused = true)]
async fn the_newest_request_replaces_the_oldest_one() {
    let line = OwnLine(LeakyBucket::new(Quota::per_second(1)).queue(2));
    let layer = RateLimitLayer::new(key, line)
        .respond(AsError)
        .order(Order::Newest);
    let harness = Harness::new(&layer);
    let _calls = harness.send_all(0..3).await;
    let newest = harness.send(3).await;
    assert_eq!(layer.handle().waiting(), 2);
    pass(10_000).await;
    assert_eq!(harness.served(), [(0, 0), (3, 1_000), (2, 2_000)]);
    assert!(newest.await.unwrap().is_ok());
}
