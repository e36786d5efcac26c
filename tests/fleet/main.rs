//! Limits of a fleet that decide in memory, over a store in memory.
#![cfg(feature = "cas")]

mod allocations;
#[path = "../common/altered_store.rs"]
mod altered_store;
mod backend;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod chaos;
#[path = "../common/counting.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod counting;
mod exchange;
mod failure;
mod handle;
mod leased;
#[cfg(all(feature = "metrics", feature = "tracing"))]
#[path = "../common/log.rs"]
mod log;
#[cfg(feature = "metrics")]
#[path = "../common/measured.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod measured;
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
#[cfg(any(feature = "postgres", feature = "redis"))]
#[path = "../common/proxy.rs"]
#[expect(dead_code, reason = "shared with the tests of stores")]
mod proxy;
#[cfg(feature = "redis")]
#[path = "../common/redis_server.rs"]
#[expect(dead_code, reason = "shared with the tests of Redis")]
mod redis_server;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod servers;
#[path = "../common/set_clock.rs"]
mod set_clock;
#[cfg(any(feature = "postgres", feature = "redis"))]
#[path = "../common/wait.rs"]
mod wait;

use std::time::Duration;

use tower_throttle::FixedWindow;
use tower_throttle::store::cas::CasStore;
use tower_throttle::store::fleet::{
    FleetBuilder, FleetLimiter, LeasedBuilder, Mode, SyncedBuilder,
};

use self::memory_fleet::{admit, drain, outage, remaining, take, take_all, window};

const INTERVAL: Duration = Duration::from_millis(100);

fn synced<S: CasStore + Clone>(store: &S) -> SyncedBuilder<S> {
    SyncedBuilder::new(store.clone()).interval(INTERVAL)
}

fn leased<S: CasStore + Clone>(store: &S) -> LeasedBuilder<S> {
    LeasedBuilder::new(store.clone()).interval(INTERVAL)
}

/// A machine of its own, with a [`window`].
fn machine<S: CasStore, M: Mode>(builder: FleetBuilder<S, M>) -> FleetLimiter<S, FixedWindow, M> {
    builder.build("api", window()).expect("a limit")
}

/// Lets the machines exchange, in paused time.
async fn pass(intervals: u32) {
    tokio::time::sleep(INTERVAL * intervals).await;
}
