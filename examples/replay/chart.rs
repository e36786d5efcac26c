//! Units over time, in bins whose width grows with the trace.

use crate::{answer::Answer, tally::Tally};

/// The maximum number of bins. All but the shortest traces fill at least half of them.
const BINS: usize = 256;

/// Tallies over time.
///
/// The length of a trace is known only at its end. So a bin is one nanosecond wide at first, and if
/// the bins do not suffice, pairs of bins are merged.
pub(crate) struct Chart {
    start: Option<u64>,
    /// The width of a bin in nanoseconds.
    pub(crate) width: u64,
    pub(crate) bins: Vec<Tally>,
}

impl Chart {
    pub(crate) fn new() -> Self {
        Self {
            start: None,
            width: 1,
            bins: Vec::with_capacity(BINS),
        }
    }

    /// Counts a request in the bin of its decision.
    pub(crate) fn record(&mut self, answer: &Answer) {
        let start = *self.start.get_or_insert(answer.now);
        let bin = loop {
            match usize::try_from((answer.now - start) / self.width) {
                Ok(bin) if bin < BINS => break bin,
                _ => self.merge_pairs(),
            }
        };
        // Also for a step that requests nothing: time has passed.
        if bin >= self.bins.len() {
            self.bins.resize(bin + 1, Tally::default());
        }
        if let Some(units) = answer.offered {
            self.bins[bin].record(units, answer);
        }
    }

    fn merge_pairs(&mut self) {
        self.width *= 2;
        for bin in 0..self.bins.len() {
            let moved = self.bins[bin];
            if bin % 2 == 0 {
                self.bins[bin / 2] = moved;
            } else {
                self.bins[bin / 2] += moved;
            }
        }
        self.bins.truncate(self.bins.len().div_ceil(2));
    }
}
