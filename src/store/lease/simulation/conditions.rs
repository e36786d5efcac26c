//! What is particular about a fleet.

use crate::store::fleet::simulation::{Quotas, Timeline};

/// By which clocks machines decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clocks {
    /// By that of the store.
    Store,
    /// By those of several servers.
    Servers,
    /// Each by its own.
    Machines,
}

/// How a fleet differs from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conditions {
    /// Whether nothing is disturbed: no machine crashes or sleeps, and no message is lost.
    pub(super) is_reliable: bool,
    pub(super) clocks: Clocks,
    pub(super) quotas: Quotas,
    /// Whether limits are reset and closed, and penalties given.
    pub(super) is_changed: bool,
}

impl Conditions {
    pub(super) fn random(time: &mut Timeline) -> Self {
        let is_reliable = time.below(3) == 0;
        let clocks = match time.below(4) {
            0 => Clocks::Machines,
            1 => Clocks::Servers,
            _ => Clocks::Store,
        };
        Self {
            is_reliable,
            clocks,
            quotas: time.quotas(),
            is_changed: time.below(4) == 0,
        }
    }

    /// Whether a window that does not end shows each cost. By the clocks of several servers, units can seem to
    /// be over that were not used.
    pub(super) fn is_simple(self) -> bool {
        let has_one = self.quotas == Quotas::One;
        self.is_reliable && self.clocks != Clocks::Servers && has_one
    }
}
