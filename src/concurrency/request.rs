//! What a request asks for, and what it sees of the limit.

use crate::decision::{Decision, Verdict};
use crate::key::Priority;
use crate::queue::Order;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(unnameable_types, reason = "only layers use it")]
pub struct PermitRequest {
    /// Identifies the key.
    pub(super) id: u64,
    pub(super) units: u64,
    pub(super) priority: Priority,
    /// Among the waiting requests of its priority.
    pub(super) order: Order,
}

/// How much of the limit of a key is taken, as a request of some priority sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(unnameable_types, reason = "only layers use it")]
pub struct Usage {
    pub(super) in_flight: u64,
    /// The part of the limit that requests of the priority may use.
    pub(super) limit: u64,
}

impl Usage {
    /// The decision on a request, itself in flight if it goes on.
    pub(super) fn decision(self, verdict: Verdict) -> Decision {
        let Self { in_flight, limit } = self;
        Decision::new(verdict, limit, limit.saturating_sub(in_flight), None, 0)
    }
}
