//! What operators read from time to time.

use crate::backend::Fullness;

/// What a limit holds at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gauges {
    pub(crate) waiting: u64,
    /// The units in flight, and the limit.
    pub(crate) in_flight: Option<(u64, u64)>,
    pub(crate) table: Option<(usize, usize)>,
    pub(crate) largest_use_percent: Option<u64>,
}

impl Gauges {
    pub(crate) fn of(waiting: u64, fullness: Option<Fullness>) -> Self {
        Self {
            waiting,
            in_flight: None,
            table: fullness.map(|full| (full.keys, full.capacity)),
            largest_use_percent: fullness.map(|full| full.largest_use_percent),
        }
    }
}
