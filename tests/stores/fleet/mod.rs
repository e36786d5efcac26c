//! Limits of a fleet that decide in memory, over a store in memory.

mod allocations;
mod backend;
mod exchange;
mod failure;
mod leased;
#[cfg(feature = "metrics")]
mod metrics;
use std::time::Duration;

use tower_throttle::FixedWindow;
use tower_throttle::store::cas::CasStore;
use tower_throttle::store::fleet::{FleetBuilder, FleetLimiter, LeasedBuilder, SyncedBuilder};

use crate::memory_fleet::{admit, drain, outage, remaining, take, take_all, window};

const INTERVAL: Duration = Duration::from_millis(100);

fn synced<S: CasStore + Clone>(store: &S) -> SyncedBuilder<S> {
    SyncedBuilder::new(store.clone()).interval(INTERVAL)
}

fn leased<S: CasStore + Clone>(store: &S) -> LeasedBuilder<S> {
    LeasedBuilder::new(store.clone()).interval(INTERVAL)
}

/// A machine of its own, with a [`window`].
fn machine<S: CasStore, const AHEAD: bool>(
    builder: FleetBuilder<S, AHEAD>,
) -> FleetLimiter<S, FixedWindow, AHEAD> {
    builder.build("api", window()).expect("a limit")
}

/// Lets the machines exchange, in paused time.
async fn pass(intervals: u32) {
    tokio::time::sleep(INTERVAL * intervals).await;
}
