//! Units over time, in bins that grow with the trace.

use crate::{answer::Answer, tally::Tally};

/// At most so many bins; half as many or more, but for the shortest of traces.
const BINS: usize = 256;

/// Tallies over time.
///
/// How long the trace is will not be known before its end. So the bins start with a nanosecond
/// each, and whenever they do not suffice, each two of them become one.
pub(crate) struct Chart {
    start: Option<u64>,
    /// The length of a bin in nanoseconds.
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
                _ => self.halve(),
            }
        };
        // Also for a step that asks for nothing: time went on.
        if bin >= self.bins.len() {
            self.bins.resize(bin + 1, Tally::default());
        }
        if let Some(units) = answer.offered {
            self.bins[bin].record(units, answer);
        }
    }

    fn halve(&mut self) {
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
