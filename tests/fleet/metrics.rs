//! The metric of a limit of a fleet.

use tower_throttle::store::cas::{Faulty, MemoryStore};

use crate::gauges::{lag_is_shown, with_gauges};
use crate::{machine, synced};

/// Shows promise 210.
#[test]
fn a_gauge_shows_for_how_long_a_use_has_not_been_reported() {
    with_gauges(async |value| {
        let lag = || value("tower_throttle_fleet_lag_seconds");
        let store = Faulty::new(MemoryStore::new());
        let limit = machine(synced(&store).machines(1));
        lag_is_shown(&store, &limit, || limit.lag(), lag).await;
    });
}
