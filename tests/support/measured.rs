//! What a program measures and logs, for tests. No key is in either.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, Mutex},
};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

/// The name of a key, which no log and no label may have.
pub const SECRET: &str = "hunter2";

/// The sum of each counter, the value and the maximum of each gauge, and the values of each
/// histogram, by name and labels.
#[derive(Clone, Debug, Default)]
pub struct Measured(Arc<Mutex<BTreeMap<String, Vec<f64>>>>);

struct Metric(Measured, String);

impl Metric {
    fn push(&self, value: f64) {
        let mut metrics = self.0.0.lock().expect("metrics");
        metrics.entry(self.1.clone()).or_default().push(value);
    }

    fn add(&self, change: f64) {
        let last = self.0.all(&self.1).last().copied().unwrap_or(0.0);
        self.push(last + change);
    }
}

impl CounterFn for Metric {
    fn increment(&self, value: u64) {
        self.add(value as f64);
    }

    fn absolute(&self, value: u64) {
        self.push(value as f64);
    }
}

impl GaugeFn for Metric {
    fn increment(&self, value: f64) {
        self.add(value);
    }

    fn decrement(&self, value: f64) {
        self.add(-value);
    }

    fn set(&self, value: f64) {
        self.push(value);
    }
}

impl HistogramFn for Metric {
    fn record(&self, value: f64) {
        self.push(value);
    }
}

impl Measured {
    fn metric(&self, key: &Key) -> Arc<Metric> {
        let labels = key
            .labels()
            .map(|label| format!(" {}={}", label.key(), label.value()));
        let name = key.name().to_owned() + &labels.collect::<String>();
        assert!(!name.contains(SECRET), "{name}");
        Arc::new(Metric(self.clone(), name))
    }

    /// All values of a metric, in order.
    pub fn all(&self, name: &str) -> Vec<f64> {
        let metrics = self.0.lock().expect("metrics");
        metrics.get(name).cloned().unwrap_or_default()
    }

    /// The names and labels of all metrics.
    pub fn names(&self) -> Vec<String> {
        self.0.lock().expect("metrics").keys().cloned().collect()
    }

    /// The value of a counter.
    pub fn count(&self, name: &str) -> u64 {
        self.value(name) as u64
    }

    /// The value of a counter or gauge.
    pub fn value(&self, name: &str) -> f64 {
        self.all(name).last().copied().unwrap_or(0.0)
    }
}

impl Recorder for Measured {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.metric(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.metric(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.metric(key))
    }
}

/// Runs what is measured on one thread.
pub fn measure<F: Future<Output = ()>>(run: impl FnOnce(Measured) -> F) -> Measured {
    let recorder = Measured::default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    metrics::with_local_recorder(&recorder, || runtime.block_on(run(recorder.clone())));
    recorder
}

/// Runs a test on one thread, with a recorder and a log of its own.
pub fn measured<F: Future<Output = ()>>(test: impl FnOnce(Measured) -> F) {
    crate::log::subscribe(tracing::Level::INFO);
    measure(test);
    let text = crate::log::log();
    assert!(!text.contains(SECRET), "{text}");
}
