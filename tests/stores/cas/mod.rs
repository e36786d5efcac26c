//! Limits in a store with a compare-and-swap, over a store in memory.

mod faults;
mod histories;
mod machines;
mod own;
mod permits;
mod shut_down;
#[cfg(feature = "testkit")]
mod testkit;
#[cfg(feature = "testkit")]
mod testkit_backend;
mod time;

use std::time::Duration;

use tower_throttle::store::cas::{Cas, CasStore};
use tower_throttle::store::{Backend, Op};
use tower_throttle::{Decision, Quota, StoreError, TokenBucket};

/// A bucket of `limit` that does not refill during a test.
fn bucket(limit: u64) -> TokenBucket {
    TokenBucket::new(Quota::per(limit, Duration::from_secs(1_000_000)))
}

/// A limit on a machine of its own, which asks the store also about denials.
fn machine<S: CasStore + Clone>(store: &S, limit: u64) -> Cas<S, TokenBucket> {
    let limit = Cas::new(store.clone(), "api", bucket(limit)).expect("a limit");
    limit.without_deny_cache().deadline(Duration::from_secs(10))
}

/// How much is left for a key.
async fn remaining<S: CasStore>(limit: &Cas<S, TokenBucket>) -> u64 {
    let peeked = limit.apply("key", Op::Peek(0)).await;
    peeked.expect("a decision").remaining()
}

async fn take<S: CasStore>(limit: &Cas<S, TokenBucket>, cost: u64) -> Result<Decision, StoreError> {
    limit.decide("key", cost).await
}
