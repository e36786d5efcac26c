//! Limits of a fleet whose machines take units ahead, over a store in memory.
#![cfg(feature = "cas")]

mod allocations;
#[path = "../common/altered_store.rs"]
mod altered_store;
mod backend;
#[path = "../common/counting.rs"]
mod counting;
mod failure;
#[cfg(feature = "metrics")]
#[path = "../common/gauges.rs"]
mod gauges;
mod handle;
mod known_failures;
mod leases;
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
#[cfg(feature = "redis")]
#[path = "../common/redis_server.rs"]
#[expect(dead_code, reason = "shared with the tests of Redis")]
mod redis_server;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod servers;

use std::time::Duration;

use tower_throttle::FixedWindow;
use tower_throttle::store::Backend;
use tower_throttle::store::cas::CasStore;
use tower_throttle::store::lease::{Leased, LeasedBuilder};

use self::memory_fleet::{admit, outage, remaining, take, take_all, window};

const LIFE: Duration = Duration::from_millis(1_200);

fn builder<S: CasStore + Clone>(store: &S) -> LeasedBuilder<S> {
    LeasedBuilder::new(store.clone()).life(LIFE).units(20)
}

/// A machine of its own.
fn machine<S: CasStore + Clone>(store: &S) -> Leased<S, FixedWindow> {
    builder(store).build("api", window()).expect("a limit")
}

/// Makes requests of one unit each.
async fn admit_units(limit: &impl Backend<str>, count: u32) {
    for _ in 0..count {
        admit(limit, 1).await;
    }
}

/// Lets a part of the life of a lease pass, in paused time.
async fn pass(twelfths: u32) {
    tokio::time::sleep(LIFE / 12 * twelfths).await;
}
