//! The settings of a layer that are plain values.

use std::num::NonZero;

use crate::key::Priority;
use crate::queue::{Order, WhenFull};

/// What happens to requests while the backend cannot decide.
///
/// This is about outages. An error that does not go away by itself, such as a wrong password, denies
/// requests either way: otherwise the limit would be off without being noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnStoreError {
    /// They pass, unlimited.
    #[default]
    Allow,
    /// They are denied; in HTTP with 503.
    Deny,
}

/// The settings of a layer that are plain values.
#[expect(clippy::struct_excessive_bools, reason = "settings that are on or off")]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LayerOptions {
    pub(super) shadow: bool,
    /// Responses do not state the limit, whatever headers are set.
    pub(super) silent: bool,
    pub(super) share_decision: bool,
    /// A limit learns at the end what a request has cost.
    pub(super) shares_cost: bool,
    pub(super) when_full: WhenFull,
}

/// How requests wait. What is not set here is as the algorithm says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineOptions {
    /// Whether the algorithm has a queue.
    pub(super) own: bool,
    /// [`UNSET`](Self::UNSET) if that of the algorithm is meant.
    pub(super) queue: u32,
    /// In nanoseconds.
    pub(super) max_wait: Option<NonZero<u64>>,
    pub(super) order: Order,
    /// Which requests may wait; all if not set.
    pub(super) least: Option<Priority>,
}

impl LineOptions {
    pub(super) const UNSET: u32 = u32::MAX;

    pub(super) const fn lets_wait(&self) -> bool {
        match self.queue {
            Self::UNSET => self.own,
            most => most > 0,
        }
    }
}
