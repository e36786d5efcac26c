//! How much a machine may admit between two exchanges.

use crate::algorithm::Portable;
use crate::clock::Tick;

/// How much a machine may admit between two exchanges.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rules {
    /// The most that this machine admits without the store's knowledge. A request beyond it waits
    /// for an exchange.
    pub(super) strict_budget: Option<u32>,
    /// How many machines there are, if that is configured.
    pub(super) nodes: Option<u64>,
}

/// Room that no machine uses up before its next exchange.
pub(super) const MAX_ROOM: u32 = u32::MAX >> 2;

impl Rules {
    /// How much more a machine may admit before it needs an exchange, if the key is in the state
    /// `fleet`: half of an equal part of what is left, at least one, or the configured budget. A
    /// single machine needs no exchange.
    pub(super) fn budget<A: Portable>(
        &self,
        algorithm: &A,
        fleet: &A::State,
        now: Tick,
        nodes: u64,
    ) -> u32 {
        if let Some(strict) = self.strict_budget {
            return strict.min(MAX_ROOM);
        }
        if nodes <= 1 {
            return MAX_ROOM;
        }
        let left = A::available(algorithm, fleet, now);
        let half = left / nodes.saturating_mul(2);
        u32::try_from(half).unwrap_or(MAX_ROOM).clamp(1, MAX_ROOM)
    }

    /// Whether a machine may admit its share although the fleet denies it.
    pub(super) fn has_share(&self, nodes: u64) -> bool {
        self.strict_budget.is_none() && nodes > 1
    }
}
