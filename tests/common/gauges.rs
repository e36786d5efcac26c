//! Gauges that a program sets, for tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::{
    Counter, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use tokio::time::sleep;
use tower_throttle::store::Backend;
use tower_throttle::store::cas::{Faulty, MemoryStore};

use crate::memory_fleet::{admit, outage, paused_runtime};

/// Gauges by name.
type Gauges = Arc<Mutex<BTreeMap<String, f64>>>;

/// Records gauges, and nothing else.
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

/// Runs a test in paused time. It gets the value of a gauge by its name.
pub(crate) fn with_gauges<F: Future<Output = ()>>(
    test: impl FnOnce(Box<dyn Fn(&str) -> Option<f64>>) -> F,
) {
    let gauges = Gauges::default();
    metrics::with_local_recorder(&Recorded(Arc::clone(&gauges)), || {
        let value = move |name: &str| {
            let gauges = gauges.lock().expect("no panic");
            gauges.get(name).copied()
        };
        paused_runtime().block_on(test(Box::new(value)));
    });
}

/// Checks the gauge `shown` of the `lag` of a limit, during an outage of its store and after it.
pub(crate) async fn lag_is_shown(
    store: &Faulty<MemoryStore>,
    limit: &impl Backend<str>,
    lag: impl Fn() -> Duration,
    shown: impl Fn() -> Option<f64>,
) {
    store.plan(outage());
    admit(limit, 1).await;
    sleep(Duration::from_secs(5)).await;
    let during = shown().expect("it is set once per second");
    assert!(during > 2.0, "{during}");
    assert!(lag() >= Duration::from_secs(4), "{:?}", lag());
    store.clear_plan();
    sleep(Duration::from_secs(15)).await;
    assert_eq!((shown(), lag()), (Some(0.0), Duration::ZERO));
}
