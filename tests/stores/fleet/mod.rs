//! Limits of a fleet that decide in memory, over a store in memory.

mod allocations;
mod backend;
mod exchange;
mod failure;
#[cfg(feature = "metrics")]
mod metrics;
use std::time::Duration;

use tower_throttle::store::cas::CasStore;
use tower_throttle::store::fleet::{FleetLimiter, Leased, Synced};
use tower_throttle::{FixedWindow, algorithm::Algorithm};

use crate::memory_fleet::{admit, drain, outage, remaining, stats, take, take_all, window};

const INTERVAL: Duration = Duration::from_millis(100);

/// A machine of its own, with a [`window`].
fn synced<S: CasStore + Clone>(store: &S) -> Synced<S, FixedWindow> {
    machine(store, window())
}

/// A machine of its own, with a [`window`].
fn leased<S: CasStore + Clone>(store: &S) -> Leased<S, FixedWindow> {
    machine(store, window())
}

fn machine<S: CasStore + Clone, A: Algorithm, const AHEAD: bool>(
    store: &S,
    algorithm: A,
) -> FleetLimiter<S, A, AHEAD> {
    let limit = FleetLimiter::new(store.clone(), "api", algorithm);
    limit.expect("a limit").interval(INTERVAL)
}

/// Lets the machines exchange, in paused time.
async fn pass(intervals: u32) {
    tokio::time::sleep(INTERVAL * intervals).await;
}
