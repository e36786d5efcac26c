//! An adaptive limit at work: its algorithm, its state, and the samples of the window.
//!
//! A request that ends a window takes two steps, each under the lock of the run. The load is measured
//! between them without any lock: it is the caller's code, which may read the limit or take long.

use std::{fmt, sync::Arc, time::Duration};

use super::adaptive::{Adaptive, Samples, Window};
use crate::sync::{Mutex, lock};

/// How long a window is, and how many samples it has at least.
const WINDOW: Duration = Duration::from_secs(1);
const SAMPLES: u64 = 10;

/// An algorithm with its state, whatever the algorithm.
pub(super) struct Controller {
    run: Mutex<Box<dyn Run>>,
    load: Load,
}

pub(super) trait Run: Send {
    fn samples(&mut self) -> &mut Samples;

    /// Returns the limit after a window.
    fn next(&mut self, window: &Window) -> u64;
}

/// Returns the load of the system. It is not called under a lock.
pub(super) type Load = Box<dyn Fn() -> u64 + Send + Sync>;

/// Makes a run of an algorithm from its start on.
pub(super) type Factory = Box<dyn Fn() -> Box<dyn Run> + Send + Sync>;

struct Running<A: Adaptive> {
    algorithm: Arc<A>,
    state: A::State,
    samples: Samples,
}

impl<A: Adaptive> Run for Running<A> {
    fn samples(&mut self) -> &mut Samples {
        &mut self.samples
    }

    fn next(&mut self, window: &Window) -> u64 {
        self.state = self.algorithm.next(&self.state, window);
        self.algorithm.limit(&self.state).max(1)
    }
}

/// Runs of an algorithm, their first limit, and the load that they need.
pub(super) fn factory(algorithm: impl Adaptive) -> (Factory, u64, Load) {
    let algorithm = Arc::new(algorithm);
    let start = algorithm.limit(&algorithm.start()).max(1);
    let loaded = Arc::clone(&algorithm);
    let make = move || -> Box<dyn Run> {
        Box::new(Running {
            state: algorithm.start(),
            algorithm: Arc::clone(&algorithm),
            samples: Samples::new(WINDOW, SAMPLES),
        })
    };
    (Box::new(make), start, Box::new(move || loaded.load()))
}

impl Controller {
    /// The controller, and the first limit.
    pub(super) fn new(algorithm: impl Adaptive) -> (Self, u64) {
        let (make, limit, load) = factory(algorithm);
        let run = Mutex::new(make());
        (Self { run, load }, limit)
    }

    /// Adds a sample. `store` gets the new limit if this request ended a window; it is called while no
    /// other window can end. Returns whether it was called.
    pub(super) fn record(
        &self,
        record: impl FnOnce(&mut Samples) -> Option<Window>,
        store: impl FnOnce(u64),
    ) -> bool {
        let ended = record(lock(&self.run).samples());
        let Some(window) = ended else {
            return false;
        };
        let window = window.with_load((self.load)());
        let mut run = lock(&self.run);
        store(run.next(&window));
        true
    }
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").finish_non_exhaustive()
    }
}
