//! What a request asks for, and what it sees of the limit.

use crate::decision::{Decision, Verdict};
use crate::key::Weight;
use crate::queue::Order;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PermitRequest {
    /// Identifies the key.
    pub(super) id: u64,
    pub(super) units: u64,
    pub(super) priority: u8,
    /// How many units of the limit it has to leave free, for requests of higher priority.
    pub(super) reserved: u32,
    /// Among the waiting requests of its priority.
    pub(super) order: Order,
}

impl PermitRequest {
    pub(super) const fn weight(self) -> Weight {
        let (cost, priority) = (self.units, self.priority);
        Weight { cost, priority }
    }
}

/// What a request may use of `limit` that has to leave `reserved` units free: at least 1.
#[inline]
pub(super) fn part_of(limit: u64, reserved: u32) -> u64 {
    limit.saturating_sub(reserved.into()).max(1)
}

/// So many units of the limit are kept for requests of at least this priority.
pub(super) type Reserve = (u8, u32);

/// How many units a request has to leave free.
#[inline]
pub(super) fn reserved((least, units): Reserve, priority: u8) -> u32 {
    if priority < least { units } else { 0 }
}

/// How much of the limit of a key is taken, as a request sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyUsage {
    pub(super) in_flight: u64,
    /// The part of the limit that the request may use.
    pub(super) limit: u64,
}

impl KeyUsage {
    /// The decision on a request, itself in flight if it goes on.
    pub(super) fn decision(self, verdict: Verdict) -> Decision {
        let Self { in_flight, limit } = self;
        Decision::new(verdict, limit, limit.saturating_sub(in_flight), None, 0)
    }
}
