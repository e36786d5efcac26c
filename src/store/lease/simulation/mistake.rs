//! Mistakes that the checks have to find.

use super::conditions::{Clocks, Conditions};
use crate::store::fleet::simulation::Quotas;

/// A mistake that the checks have to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    None,
    /// A report that is sent again is counted again, and so returns units twice.
    ReturnTwice,
    /// A machine uses its lease for longer than it lasts.
    OutliveEnd,
    /// A reply that comes after the end of the lease is taken for a new one.
    UseLateReply,
    /// A machine whose clock stood still while it slept goes on as if it had not.
    ClockStops,
    /// A machine that has slept uses what was granted in exchanges that were under way.
    UseReplyOfBefore,
    /// The units of a lease that has ended are free again.
    FreeExpired,
    /// Units count as used when they are granted, so that the bucket refills while they are out.
    GrantOnRefill,
    /// Units that others hold do not count.
    ForgetOthers,
    /// A lease that has ended is charged only to the configuration that exchanges first.
    ChargeOneConfiguration,
    /// A reset frees the units that other machines hold.
    ResetFreesOthers,
    /// A reset comes with a report that is sent again, and undoes what has happened since.
    ResetTwice,
    /// A machine ends its leases as if all clocks showed the same.
    TrustClocks,
    /// Closing a limit returns units, and its machine uses them on.
    UseReturned,
}

impl Mistake {
    /// Whether a fleet can show it. The others run as without it.
    pub(super) fn can_show(self, conditions: Conditions, has_long_window: bool) -> bool {
        match self {
            Self::UseLateReply | Self::ClockStops | Self::UseReplyOfBefore => {
                !conditions.is_reliable
            }
            Self::ChargeOneConfiguration => conditions.quotas != Quotas::One,
            Self::ResetFreesOthers | Self::ResetTwice | Self::UseReturned => conditions.is_changed,
            // Other limits may refill in the time by which clocks differ.
            Self::TrustClocks => conditions.clocks != Clocks::Store && has_long_window,
            _ => true,
        }
    }

    /// Those that one of a few fleets shows.
    pub(super) const COMMON: [Self; 5] = [
        Self::ReturnTwice,
        Self::OutliveEnd,
        Self::FreeExpired,
        Self::GrantOnRefill,
        Self::ForgetOthers,
    ];
    /// Those that need many.
    pub(super) const RARE: [Self; 8] = [
        Self::UseLateReply,
        Self::ClockStops,
        Self::UseReplyOfBefore,
        Self::ChargeOneConfiguration,
        Self::ResetFreesOthers,
        Self::ResetTwice,
        Self::TrustClocks,
        Self::UseReturned,
    ];
}
