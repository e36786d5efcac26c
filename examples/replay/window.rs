//! The most that went through within one period.

use std::collections::VecDeque;

/// What went through in the last period of one key, at each moment.
#[derive(Default)]
pub(crate) struct Window {
    recent: VecDeque<(u64, u64)>,
    units: u128,
}

/// A period in which much went through: `[start, start + period)`.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) units: u128,
}

impl Window {
    /// Counts `units` that went through at `at`, not before any earlier ones. Responder the period
    /// that ends with them: the worst of all periods is one that ends with somebody.
    pub(crate) fn add(&mut self, at: u64, units: u64, period: u64) -> Span {
        while let Some((first, gone)) = self.recent.front() {
            // Half open: what is exactly a period old is out.
            if at - first < period {
                break;
            }
            self.units -= u128::from(*gone);
            self.recent.pop_front();
        }
        self.units += u128::from(units);
        self.recent.push_back((at, units));
        Span {
            start: self.recent.front().map_or(at, |(first, _)| *first),
            units: self.units,
        }
    }
}
