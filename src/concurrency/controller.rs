//! An adaptive limit at work: its algorithm, its state, and the samples of the window.

use std::{fmt, sync::Arc, time::Duration};

use super::adaptive::{Adaptive, Outcome, Samples};
use crate::clock::Tick;
use crate::sync::{Mutex, lock};

/// How long a window is, and how many samples it has at least.
const WINDOW: Duration = Duration::from_secs(1);
const SAMPLES: u64 = 10;

/// An algorithm with its state, whatever the algorithm.
pub(super) struct Controller(Mutex<Box<dyn Run>>);

pub(super) trait Run: Send {
    /// See [`Samples::record`]. Returns the new limit if this request ended a window.
    fn record(&mut self, now: Tick, latency: Duration, in_flight: u64, out: Outcome)
    -> Option<u64>;
}

/// Makes a run of an algorithm from its start on.
pub(super) type Factory = Box<dyn Fn() -> Box<dyn Run> + Send + Sync>;

struct Running<A: Adaptive> {
    algorithm: Arc<A>,
    state: A::State,
    samples: Samples,
}

impl<A: Adaptive> Run for Running<A> {
    fn record(
        &mut self,
        now: Tick,
        latency: Duration,
        in_flight: u64,
        outcome: Outcome,
    ) -> Option<u64> {
        let window = self.samples.record(now, latency, in_flight, outcome)?;
        let window = window.with_load(self.algorithm.load());
        self.state = self.algorithm.next(&self.state, &window);
        Some(self.algorithm.limit(&self.state).max(1))
    }
}

impl<A: Adaptive> Running<A> {
    fn new(algorithm: Arc<A>) -> Self {
        Self {
            state: algorithm.start(),
            algorithm,
            samples: Samples::new(WINDOW, SAMPLES),
        }
    }
}

/// Runs of an algorithm, and their first limit.
pub(super) fn factory(algorithm: impl Adaptive) -> (Factory, u64) {
    let algorithm = Arc::new(algorithm);
    let start = first_limit(&*algorithm);
    let make = move || Box::new(Running::new(Arc::clone(&algorithm))) as Box<dyn Run>;
    (Box::new(make), start)
}

fn first_limit(algorithm: &impl Adaptive) -> u64 {
    algorithm.limit(&algorithm.start()).max(1)
}

impl Controller {
    /// The controller, and the first limit.
    pub(super) fn new(algorithm: impl Adaptive) -> (Self, u64) {
        let limit = first_limit(&algorithm);
        let running = Running::new(Arc::new(algorithm));
        (Self(Mutex::new(Box::new(running))), limit)
    }

    /// Adds a sample. `store` gets the new limit if this request ended a window; it is called while no
    /// other window can end. Returns whether it was called.
    pub(super) fn record(
        &self,
        now: Tick,
        latency: Duration,
        in_flight: u64,
        outcome: Outcome,
        store: impl FnOnce(u64),
    ) -> bool {
        let mut running = lock(&self.0);
        let limit = running.record(now, latency, in_flight, outcome);
        limit.map(store).is_some()
    }
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").finish_non_exhaustive()
    }
}
