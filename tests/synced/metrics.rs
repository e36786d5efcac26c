//! The metric of a synced limit.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::{
    Counter, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use tower_throttle::store::cas::{Fault, Faulty, MemoryStore};

use crate::{admit, machine, pass};

/// Gauges by name.
type Gauges = Arc<Mutex<BTreeMap<String, f64>>>;

struct Recorded(Gauges);

struct Named(String, Gauges);

impl GaugeFn for Named {
    fn increment(&self, _: f64) {}

    fn decrement(&self, _: f64) {}

    fn set(&self, value: f64) {
        let mut gauges = self.1.lock().expect("no panic");
        gauges.insert(self.0.clone(), value);
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let named = Named(key.name().to_owned(), Arc::clone(&self.0));
        Gauge::from_arc(Arc::new(named))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn a_gauge_shows_for_how_long_a_change_has_not_been_sent() {
    let gauges = Gauges::default();
    let lag = || {
        let gauges = gauges.lock().expect("no panic");
        gauges.get("tower_throttle_synced_lag_seconds").copied()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    metrics::with_local_recorder(&Recorded(Arc::clone(&gauges)), || {
        runtime.block_on(async {
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
    });
}
