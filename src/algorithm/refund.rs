//! What is given back, and why.

use std::time::Duration;

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
    /// The request has left before its turn. Requests behind it keep their turns, so a bucket gives back only the
    /// last one: another one passes unused.
    Cancel,
    /// The request succeeded: a limit of failures that is set to do so frees those before it too.
    Forgive,
}

impl Cost {
    /// Whether it is to be given back as it was taken at `at`, or as a turn that is the last before it comes.
    pub(super) fn is_due(
        self,
        now: Tick,
        why: GiveBack,
        is_last: impl FnOnce(Tick) -> bool,
    ) -> bool {
        // A wait was rounded up.
        let turn = self.at.plus(Duration::from_nanos(1));
        why != GiveBack::Cancel || (turn > now && is_last(turn))
    }
}
