//! Counts of requests, and of the units they cost.

use std::ops::AddAssign;

use crate::answer::{Answer, Outcome};

/// How many requests, and how many units.
#[derive(Clone, Copy, Default)]
pub(crate) struct Count {
    pub(crate) requests: u64,
    pub(crate) units: u128,
}

/// What was asked for, and what became of it. The last three add up to the first one.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) offered: Count,
    /// Went through at once.
    pub(crate) admitted: Count,
    /// Went through later.
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
                // Of one that takes what is there, the rest was not admitted.
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
