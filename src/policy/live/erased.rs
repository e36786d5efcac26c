//! Limiters whose type only the program knows.

use std::{
    future::{Future, Ready, ready},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use super::key::PolicyKey;
use crate::backend::{Backend, Bans, Fullness, Losses, Op};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::StoreError;
use crate::quota::{Plan, Quota};

type Decided = Result<Decision, StoreError>;

/// Decides about the requests of a rate limit in a policy file, in the memory of this process or in a store.
/// A [`Handle`](crate::Handle) reads and changes its keys; only a lockout has bans.
pub type PolicyLimiter =
    Arc<dyn Backend<PolicyKey, Future = Pin<Box<dyn Future<Output = Decided> + Send>>>>;

/// The limit may be a lockout.
impl Bans for PolicyLimiter {}

pub(super) fn erased(limiter: impl Backend<PolicyKey>) -> PolicyLimiter {
    Arc::new(Boxed(limiter))
}

/// A limiter of any type, its future boxed.
struct Boxed<L>(L);

impl<L: Backend<PolicyKey>> Backend<PolicyKey> for Boxed<L> {
    type Future = Pin<Box<dyn Future<Output = Decided> + Send>>;

    fn apply(&self, key: &PolicyKey, op: Op) -> Self::Future {
        Box::pin(self.0.apply(key, op))
    }

    fn take_turn(&self, key: &PolicyKey, cost: u64, at: Tick) -> Option<Decision> {
        self.0.take_turn(key, cost, at)
    }

    fn expected_wait(&self, key: &PolicyKey, ahead: u64, cost: u64, at: Tick) -> Option<Duration> {
        self.0.expected_wait(key, ahead, cost, at)
    }

    fn detach(&self, key: &PolicyKey, op: Op) {
        self.0.detach(key, op);
    }

    fn current_decision(&self, key: &PolicyKey, cost: u64) -> Option<Decision> {
        self.0.current_decision(key, cost)
    }

    fn losses(&self) -> Losses {
        self.0.losses()
    }

    fn fullness(&self) -> Option<Fullness> {
        self.0.fullness()
    }

    fn quotas(&self) -> Vec<Quota> {
        self.0.quotas()
    }

    fn plan_of(&self, key: &PolicyKey) -> Option<Plan> {
        self.0.plan_of(key)
    }

    fn queue_of(&self, key: &PolicyKey) -> (u64, Duration) {
        self.0.queue_of(key)
    }
}

/// The same decision for each request, as a [`Plan`] says.
pub(super) struct Fixed(pub(super) Plan, pub(super) Decision);

impl Backend<PolicyKey> for Fixed {
    type Future = Ready<Decided>;

    fn apply(&self, _: &PolicyKey, _: Op) -> Self::Future {
        ready(Ok(self.1))
    }

    fn current_decision(&self, _: &PolicyKey, _: u64) -> Option<Decision> {
        Some(self.1)
    }

    fn quotas(&self) -> Vec<Quota> {
        Vec::new()
    }

    fn plan_of(&self, _: &PolicyKey) -> Option<Plan> {
        Some(self.0)
    }
}
