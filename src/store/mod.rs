//! Where states live. A stand-in, until the table is here.

use std::collections::HashMap;
use std::future::{Ready, ready};
use std::hash::{BuildHasher, Hash, RandomState};

use crate::algorithm::Algorithm;
use crate::algorithm::Inherit;
use crate::algorithm::IntoAlgorithm;
use crate::clock::Clock;
use crate::clock::MonotonicClock;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::error::StoreError;
use crate::limiter::IntoLimiter;
use crate::limiter::KeyedLimiter;
use crate::limiter::Op;
use crate::quota::Quota;
use crate::sync::Mutex;
use crate::sync::lock;

/// Keys in this process.
#[derive(Debug)]
pub struct Local<A: Algorithm> {
    hasher: RandomState,
    states: Mutex<(A, HashMap<u64, A::State>)>,
}

impl<A: Algorithm> Local<A> {
    /// A stand-in.
    pub fn new(algorithm: A) -> Self {
        Self {
            hasher: RandomState::new(),
            states: Mutex::new((algorithm, HashMap::new())),
        }
    }

    /// Changes the quota.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn set_quota(&self, quota: Quota) -> Result<(), ConfigError> {
        let mut states = lock(&self.states);
        let (algorithm, states) = &mut *states;
        let new = algorithm.with_quota(quota)?;
        let now = MonotonicClock.now();
        for state in states.values_mut() {
            new.rescale(state, algorithm, now, Inherit::AsIs);
        }
        *algorithm = new;
        Ok(())
    }
}

impl<K: Hash + ?Sized, A: Algorithm> KeyedLimiter<K> for Local<A> {
    type Future = Ready<Result<Decision, StoreError>>;

    fn apply(&self, key: &K, op: Op) -> Self::Future {
        let now = MonotonicClock.now();
        let mut states = lock(&self.states);
        let (algorithm, states) = &mut *states;
        let key = self.hasher.hash_one(key);
        let state = states.entry(key).or_insert_with(|| algorithm.fresh(now));
        let decision = match op {
            Op::Take(cost) => algorithm.decide(state, now, cost),
            Op::Peek(cost) => algorithm.peek(state, now, cost),
            Op::Refund(cost) => {
                algorithm.refund(state, now, cost);
                algorithm.peek(state, now, 0)
            }
            Op::Absorb(cost) => {
                let _ = algorithm.absorb(state, now, cost);
                algorithm.peek(state, now, 0)
            }
            Op::Reset => {
                *state = algorithm.fresh(now);
                algorithm.peek(state, now, 0)
            }
        };
        ready(Ok(decision))
    }

    fn quotas(&self) -> Vec<Quota> {
        vec![lock(&self.states).0.quota()]
    }
}

impl<T: IntoAlgorithm> IntoLimiter for T {
    type Limiter = Local<T::Algorithm>;

    fn into_limiter(self) -> Self::Limiter {
        Local::new(self.into_algorithm())
    }
}
