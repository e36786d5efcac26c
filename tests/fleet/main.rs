//! Limits of a fleet that decide in memory, over a store in memory.
#![cfg(feature = "cas")]

mod allocations;
#[path = "../common/altered_store.rs"]
mod altered_store;
mod backend;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod chaos;
mod exchange;
mod failure;
mod handle;
mod leased;
#[path = "../common/memory_fleet.rs"]
mod memory_fleet;
#[cfg(feature = "metrics")]
mod metrics;
#[path = "../common/overwrite.rs"]
mod overwrite;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod servers;
#[path = "../common/set_clock.rs"]
mod set_clock;

use test_support::counting;

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;
#[cfg(feature = "metrics")]
use test_support::measured;
#[cfg(feature = "postgres")]
use test_support::postgres_server;
#[cfg(any(feature = "postgres", feature = "redis"))]
use test_support::proxy;
#[cfg(feature = "redis")]
use test_support::redis_server;
#[cfg(any(feature = "postgres", feature = "redis"))]
use test_support::wait;

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
