//! Limits of a fleet that decide in memory, over a store in memory.
#![cfg(feature = "cas")]

mod allocations;
mod backend;
#[path = "../common/counting.rs"]
mod counting;
mod exchange;
mod failure;
#[cfg(all(feature = "governor", feature = "postgres", feature = "redis"))]
#[path = "../common/fleet.rs"]
mod fleet;
#[cfg(feature = "metrics")]
#[path = "../common/gauges.rs"]
mod gauges;
mod handle;
mod known_failures;
#[path = "../common/memory_fleet.rs"]
mod memory_fleet;
#[cfg(feature = "metrics")]
mod metrics;
#[path = "../common/overwrite.rs"]
mod overwrite;
#[cfg(feature = "postgres")]
#[path = "../common/postgres_server.rs"]
#[expect(dead_code, reason = "shared with the tests of PostgreSQL")]
mod postgres_server;
#[cfg(all(feature = "governor", feature = "postgres", feature = "redis"))]
mod processes;
#[cfg(feature = "redis")]
#[path = "../common/redis_server.rs"]
#[expect(dead_code, reason = "shared with the tests of Redis")]
mod redis_server;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod servers;

use std::time::Duration;

use tower_throttle::FixedWindow;
use tower_throttle::store::cas::CasStore;
use tower_throttle::store::synced::{Synced, SyncedBuilder};

use self::memory_fleet::{admit, outage, remaining, take, take_all, window};

const INTERVAL: Duration = Duration::from_millis(100);

fn builder<S: CasStore + Clone>(store: &S) -> SyncedBuilder<S> {
    SyncedBuilder::new(store.clone()).interval(INTERVAL)
}

/// A machine of its own.
fn machine<S: CasStore + Clone>(store: &S) -> Synced<S, FixedWindow> {
    builder(store).build("api", window()).expect("a limit")
}

/// Lets the machines exchange, in paused time.
async fn pass(intervals: u32) {
    tokio::time::sleep(INTERVAL * intervals).await;
}
