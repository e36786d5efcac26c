//! Limits of a fleet whose machines take units ahead, over a store in memory.
#![cfg(feature = "cas")]

mod allocations;
mod backend;
#[path = "../common/counting.rs"]
mod counting;
mod failure;
#[cfg(feature = "metrics")]
#[path = "../common/gauges.rs"]
mod gauges;
mod handle;
mod leases;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "postgres")]
#[path = "../common/postgres_server.rs"]
#[expect(dead_code, reason = "shared with the tests of PostgreSQL")]
mod postgres_server;
#[cfg(feature = "redis")]
#[path = "../common/redis_server.rs"]
#[expect(dead_code, reason = "shared with the tests of Redis")]
mod redis_server;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod servers;

use std::time::Duration;

use tower_throttle::algorithm::Algorithm;
use tower_throttle::store::cas::CasStore;
use tower_throttle::store::lease::{Leased, LeasedBuilder};
use tower_throttle::store::{Backend, Op};
use tower_throttle::{Decision, FixedWindow, Quota};

const LIFE: Duration = Duration::from_millis(1_200);

/// A limit of 100 units that do not come back during a test.
fn window() -> FixedWindow {
    FixedWindow::new(Quota::per(100, Duration::from_secs(1_000_000)))
}

fn builder<S: CasStore + Clone>(store: &S) -> LeasedBuilder<S> {
    LeasedBuilder::new(store.clone()).life(LIFE).units(20)
}

/// A machine of its own.
fn machine<S: CasStore + Clone>(store: &S) -> Leased<S, FixedWindow> {
    builder(store).build("api", window()).expect("a limit")
}

async fn take<S: CasStore, A: Algorithm>(limit: &Leased<S, A>, cost: u64) -> Decision {
    limit.decide("key", cost).await.expect("a decision")
}

/// Makes a request. Whether it is admitted does not matter to the test.
async fn admit<S: CasStore, A: Algorithm>(limit: &Leased<S, A>, cost: u64) {
    let _ = take(limit, cost).await;
}

/// Takes until a request is denied. Returns how much was taken.
async fn take_all<S: CasStore, A: Algorithm>(limit: &Leased<S, A>) -> u64 {
    let mut taken = 0;
    while take(limit, 1).await.is_admitted() {
        taken += 1;
    }
    taken
}

/// How much is left, as far as this machine knows.
async fn remaining<S: CasStore, A: Algorithm>(limit: &Leased<S, A>) -> u64 {
    let peeked = limit.apply("key", Op::Peek(0)).await;
    peeked.expect("a decision").remaining()
}

/// Lets a part of the life of a lease pass, in paused time.
async fn pass(twelfths: u32) {
    tokio::time::sleep(LIFE / 12 * twelfths).await;
}
