//! The metric of a limit of a fleet.

use std::time::Duration;

use tokio::time::{pause, sleep};
use tower_throttle::store::cas::{Faulty, MemoryStore};
use tower_throttle::store::fleet::Synced;

use crate::fleet::{synced, window};
use crate::measured::measure;
use crate::memory_fleet::{admit, outage};

/// Shows promise 211.
#[test]
fn a_gauge_shows_for_how_long_a_use_has_not_been_reported() {
    measure(async |metrics| {
        pause();
        let shown = || {
            let name = "tower_throttle_fleet_lag_seconds store=memory limit=api";
            metrics.all(name).last().copied()
        };
        let store = Faulty::new(MemoryStore::new());
        let limit = synced(&store);
        admit(&limit, 1).await;
        // Another limit, in a store that replies.
        let other = Synced::new(MemoryStore::new(), "other", window());
        let other = other.expect("a limit");
        admit(&other, 1).await;
        store.plan(outage());
        sleep(Duration::from_secs(5)).await;
        let during = shown().expect("it is set once per second");
        let probes = metrics.count("tower_throttle_switches_total of=breaker to=half_open");
        assert!(probes > 0);
        assert!(during > 2.0, "{during}");
        assert!(limit.lag() >= Duration::from_secs(4), "{:?}", limit.lag());
        store.plan([]);
        sleep(Duration::from_secs(15)).await;
        assert_eq!((shown(), limit.lag()), (Some(0.0), Duration::ZERO));
    });
}
