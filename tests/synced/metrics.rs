//! The metric of a synced limit.

use tower_throttle::store::cas::{Faulty, MemoryStore};

use crate::gauges::{lag_is_shown, with_gauges};
use crate::machine;

#[test]
fn a_gauge_shows_for_how_long_a_change_has_not_been_sent() {
    with_gauges(async |value| {
        let lag = || value("tower_throttle_synced_lag_seconds");
        let store = Faulty::new(MemoryStore::new());
        let limit = machine(&store);
        lag_is_shown(&store, &limit, || limit.lag(), lag).await;
    });
}
