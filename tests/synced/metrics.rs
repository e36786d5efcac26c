//! The metric of a synced limit.

use std::time::Duration;

use tower_throttle::store::cas::{Fault, Faulty, MemoryStore};

use crate::gauges::with_gauges;
use crate::{admit, machine, pass};

#[test]
fn a_gauge_shows_for_how_long_a_change_has_not_been_sent() {
    with_gauges(async |value| {
        let lag = || value("tower_throttle_synced_lag_seconds");
        let store = Faulty::new(MemoryStore::new());
        let limit = machine(&store);
        store.plan(std::iter::repeat_n(Fault::LostRequest, 1_000));
        admit(&limit, 1).await;
        pass(50).await;
        let shown = lag().expect("it is set once per second");
        assert!(shown > 2.0, "{shown}");
        assert!(limit.lag() >= Duration::from_secs(4), "{:?}", limit.lag());
        store.clear_plan();
        pass(150).await;
        assert_eq!((lag(), limit.lag()), (Some(0.0), Duration::ZERO));
    });
}
