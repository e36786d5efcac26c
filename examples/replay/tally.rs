//! Counts of requests and units.

use crate::answer::{Answer, Outcome};

/// A number of requests, and their units.
#[derive(Clone, Copy, Default)]
pub(crate) struct Count {
    pub(crate) requests: u64,
    pub(crate) units: u128,
}

/// Requests by outcome. Those admitted, denied and cancelled add up to `offered`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) offered: Count,
    pub(crate) at_once: Count,
    /// Queued, and admitted unless cancelled.
    pub(crate) queued: Count,
    pub(crate) denied: Count,
    /// Cancelled in the queue.
    pub(crate) cancelled: Count,
}

impl Count {
    pub(crate) fn add(&mut self, units: u64) {
        self.requests += 1;
        self.units += u128::from(units);
    }
}

impl Tally {
    /// Admitted after a wait.
    pub(crate) fn after_wait(&self) -> Count {
        Count {
            requests: self.queued.requests - self.cancelled.requests,
            units: self.queued.units - self.cancelled.units,
        }
    }

    /// Admitted, at once or after a wait.
    pub(crate) fn admitted(&self) -> Count {
        let later = self.after_wait();
        Count {
            requests: self.at_once.requests + later.requests,
            units: self.at_once.units + later.units,
        }
    }

    /// Counts a request of `units`.
    pub(crate) fn record(&mut self, units: u64, answer: &Answer) {
        self.offered.add(units);
        match answer.outcome {
            Outcome::Wait(_) => self.queued.add(units),
            Outcome::Deny => self.denied.add(units),
            Outcome::Admit(_) | Outcome::Done(_) => {
                let taken = answer.taken.unwrap_or(units);
                self.at_once.add(taken);
                // The rest of a `take_up_to` was denied.
                self.denied.units += u128::from(units - taken);
            }
        }
    }
}
