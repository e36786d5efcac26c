//! All runs of this server.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use crate::run::Run;

/// How many runs there may be. A new one ends the oldest.
pub(crate) const MAX_RUNS: usize = 16;

/// The runs, the oldest first.
#[derive(Default)]
pub(crate) struct Runs(Mutex<Numbered>);

#[derive(Default)]
struct Numbered {
    last: u64,
    runs: VecDeque<(u64, Arc<Run>)>,
}

impl Runs {
    /// Adds a run; returns its number.
    pub(crate) fn add(&self, run: Arc<Run>) -> u64 {
        let mut numbered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        numbered.last += 1;
        let number = numbered.last;
        if numbered.runs.len() == MAX_RUNS {
            numbered.runs.pop_front();
        }
        numbered.runs.push_back((number, run));
        number
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<Run>> {
        let numbered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = numbered.runs.iter().find(|(other, _)| *other == number);
        found.map(|(_, run)| Arc::clone(run))
    }
}
