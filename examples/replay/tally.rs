//! Counts of requests and units.

use std::ops::AddAssign;

use crate::answer::{Answer, Outcome};

/// A number of requests, and their units.
#[derive(Clone, Copy, Default)]
pub(crate) struct Count {
    pub(crate) requests: u64,
    pub(crate) units: u128,
}

/// Requests by outcome. The last three add up to `offered`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) offered: Count,
    /// Admitted at once.
    pub(crate) admitted: Count,
    /// Admitted after a wait.
    pub(crate) waited: Count,
    pub(crate) denied: Count,
}

impl Count {
    pub(crate) fn add(&mut self, units: u64) {
        self.requests += 1;
        self.units += u128::from(units);
    }
}

impl Tally {
    /// Counts a request of `units`.
    pub(crate) fn record(&mut self, units: u64, answer: &Answer) {
        self.offered.add(units);
        match answer.outcome {
            Outcome::Wait(_) => self.waited.add(units),
            Outcome::Deny => self.denied.add(units),
            Outcome::Admit(_) | Outcome::Done(_) => {
                let taken = answer.taken.unwrap_or(units);
                self.admitted.add(taken);
                // The rest of a `take_up_to` was denied.
                self.denied.units += u128::from(units - taken);
            }
        }
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.units += other.units;
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.offered += other.offered;
        self.admitted += other.admitted;
        self.waited += other.waited;
        self.denied += other.denied;
    }
}
