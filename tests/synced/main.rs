//! Limits of a fleet that decide in memory, over a store in memory.
#![cfg(feature = "cas")]

mod backend;
mod exchange;
mod failure;
#[cfg(all(feature = "postgres", feature = "redis"))]
#[path = "../common/fleet.rs"]
mod fleet;
#[cfg(feature = "metrics")]
#[path = "../common/gauges.rs"]
mod gauges;
mod handle;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "postgres")]
#[path = "../common/postgres_server.rs"]
#[expect(dead_code, reason = "shared with the tests of PostgreSQL")]
mod postgres_server;
#[cfg(all(feature = "postgres", feature = "redis"))]
mod processes;
#[cfg(feature = "redis")]
#[path = "../common/redis_server.rs"]
#[expect(dead_code, reason = "shared with the tests of Redis")]
mod redis_server;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod servers;

use std::time::Duration;

use tower_throttle::algorithm::Algorithm;
use tower_throttle::store::cas::CasStore;
use tower_throttle::store::synced::{Synced, SyncedBuilder};
use tower_throttle::store::{Backend, Op};
use tower_throttle::{Decision, FixedWindow, Quota};

const INTERVAL: Duration = Duration::from_millis(100);

/// A limit of 100 units that do not come back during a test.
fn window() -> FixedWindow {
    FixedWindow::new(Quota::per(100, Duration::from_secs(1_000_000)))
}

fn builder<S: CasStore + Clone>(store: &S) -> SyncedBuilder<S> {
    SyncedBuilder::new(store.clone()).interval(INTERVAL)
}

/// A machine of its own.
fn machine<S: CasStore + Clone>(store: &S) -> Synced<S, FixedWindow> {
    builder(store).build("api", window()).expect("a limit")
}

async fn take<S: CasStore, A: Algorithm>(limit: &Synced<S, A>, cost: u64) -> Decision {
    limit.decide("key", cost).await.expect("a decision")
}

/// Makes a request. Whether it is admitted does not matter to the test.
async fn admit<S: CasStore, A: Algorithm>(limit: &Synced<S, A>, cost: u64) {
    let _ = take(limit, cost).await;
}

/// Takes until a request is denied. Returns how much was taken.
async fn take_all<S: CasStore, A: Algorithm>(limit: &Synced<S, A>) -> u64 {
    let mut taken = 0;
    while take(limit, 1).await.is_admitted() {
        taken += 1;
    }
    taken
}

/// How much is left, as far as this machine knows.
async fn remaining<S: CasStore, A: Algorithm>(limit: &Synced<S, A>) -> u64 {
    let peeked = limit.apply("key", Op::Peek(0)).await;
    peeked.expect("a decision").remaining()
}

/// Lets the machines exchange, in paused time.
async fn pass(intervals: u32) {
    tokio::time::sleep(INTERVAL * intervals).await;
}
