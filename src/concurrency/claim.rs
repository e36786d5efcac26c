//! What a request asks for, and what it sees of the limit.

use crate::key::Priority;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// Identifies the key.
    pub(super) id: u64,
    pub(super) units: u64,
    pub(super) priority: Priority,
}

/// How much of the limit of a key is taken, as a request of some priority sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) in_flight: u64,
    /// The part of the limit that requests of the priority may use.
    pub(super) limit: u64,
}

impl Usage {
    /// That of a request without a permit.
    pub(super) const NONE: Self = Self {
        in_flight: 0,
        limit: 0,
    };
}
