//! The most units admitted within one period.

use std::collections::VecDeque;

/// The requests of one key admitted within the last period.
#[derive(Default)]
pub(crate) struct Window {
    recent: VecDeque<(u64, u64)>,
    units: u128,
}

/// The units admitted in `[start, start + period)`.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) units: u128,
}

impl Window {
    /// Counts `units` admitted at `at`, which must not decrease. Returns the period that ends there:
    /// the worst of all periods ends with an admission.
    pub(crate) fn add(&mut self, at: u64, units: u64, period: u64) -> Span {
        while let Some((first, expired)) = self.recent.front() {
            // Half open: an admission exactly one period old is outside.
            if at - first < period {
                break;
            }
            self.units -= u128::from(*expired);
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
