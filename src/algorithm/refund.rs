//! What is given back, and why.

use crate::clock::Tick;

/// A cost that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// How much was taken.
    pub units: u64,
    /// The moment of the decision, or of the turn of a queued request. It may be later than the present
    /// moment, if the turn has not come.
    pub at: Tick,
}

/// Why a cost is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GiveBack {
    /// The request is not to count.
    Refund,
    /// The request was queued and has left before its turn: a line gives back the whole cost.
    Cancel,
    /// The request succeeded: a limit of failures that is set to do so frees those before it too.
    Forgive,
}

impl Cost {
    /// `units` that were taken at `at`.
    pub const fn new(units: u64, at: Tick) -> Self {
        Self { units, at }
    }

    /// What a limit gives back that has a line, or not: time returns nothing of a turn that has not come.
    pub(super) fn of_line(self, is_line: bool, now: Tick, why: GiveBack) -> Self {
        match why {
            GiveBack::Cancel if is_line => Self { at: now, ..self },
            _ => self,
        }
    }
}
