//! An adaptive limit at work: its algorithm, and the samples of the window.

use std::{fmt, time::Duration};

use super::adaptive::{Adaptive, Outcome, Samples};
use crate::clock::Tick;
use crate::sync::{Mutex, lock};

/// How long a window is, and how many samples it has at least.
const WINDOW: Duration = Duration::from_secs(1);
const SAMPLES: u64 = 10;

/// An algorithm with its samples.
pub(super) struct Controller(Mutex<(Box<dyn Adaptive>, Samples)>);

impl Controller {
    /// The controller, and the first limit.
    pub(super) fn new(algorithm: impl Adaptive) -> (Self, u64) {
        let limit = algorithm.limit().max(1);
        let samples = Samples::new(WINDOW, SAMPLES);
        (
            Self(Mutex::new((Box::new(algorithm), samples))),
            limit.into(),
        )
    }

    /// Adds a request that ended at `now`, as [`Samples::record`] does. `store` gets the new limit if this request ended a
    /// window; it is called while no other window can end. Returns whether it was called.
    pub(super) fn record(
        &self,
        now: Tick,
        latency: Duration,
        in_flight: u64,
        outcome: Outcome,
        store: impl FnOnce(u64),
    ) -> bool {
        let mut own = lock(&self.0);
        let (algorithm, samples) = &mut *own;
        let Some(window) = samples.record(now, latency, in_flight, outcome) else {
            return false;
        };
        algorithm.next(&window);
        store(algorithm.limit().max(1).into());
        true
    }
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").finish_non_exhaustive()
    }
}
