//! What a machine holds of a key between two exchanges.

use super::figures::Figures;
use crate::clock::Tick;

/// The part of a budget that changes in exchanges, and when something begins or ends.
///
/// `left` of the lots and `own` together are `usable`, what is unripe, `next` and `unassigned`. A unit
/// that was used is in exactly one of: `unassigned`; `spent`; a report. A unit that was granted is in
/// exactly one of: `left` and `used` of its lot; a report.
#[derive(Clone, Debug, Default)]
pub(super) struct Rest {
    /// Units asked for in the interval before.
    pub(super) last_demand: u64,
    /// Units used since the last report: in windows that have ended, and in this one.
    pub(super) spent: [Spending; 2],
    /// Granted units, oldest first.
    pub(super) lots: [Lot; 2],
    /// Units that the machine took itself.
    pub(super) own: u64,
    /// Units that become usable evenly within an interval.
    pub(super) ripening: Ripening,
    /// Units that become usable at `next_from`.
    pub(super) next: u64,
    pub(super) next_from: Tick,
    pub(super) window_end: Tick,
    /// The smallest cost that waits.
    pub(super) waiting: u64,
    /// Whether `own` was taken since the last reply to a report made before.
    pub(super) has_taken: bool,
    /// Whether the report in flight settles what was taken.
    pub(super) settles_taken: bool,
    pub(super) reported: Tick,
    pub(super) figures: Option<Figures>,
    /// The last reset that is known.
    pub(super) reset: u64,
    /// Whether the next report is to reset the key.
    pub(super) resets: bool,
    /// Units reported before that are to be given back, and the first moment at which any was used.
    pub(super) given_back: Option<(u64, Tick)>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spending {
    pub(super) units: u64,
    /// The last use.
    pub(super) at: Tick,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lot {
    pub(super) epoch: u64,
    pub(super) expires: Tick,
    pub(super) left: u64,
    /// Not yet reported.
    pub(super) used: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ripening {
    pub(super) units: u64,
    pub(super) done: u64,
    pub(super) since: Tick,
}
