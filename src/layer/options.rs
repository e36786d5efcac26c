//! The settings of a layer that are plain values.

use std::{num::NonZero, time::Duration};

use crate::clock::nanos;
use crate::queue::Order;

/// What happens to requests while the backend cannot decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnStoreError {
    #[default]
    Allow,
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
    pub(super) deny_when_full: bool,
}

/// How requests wait.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LineOptions {
    /// How many of a key.
    pub(crate) queue: u32,
    /// In nanoseconds.
    pub(crate) max_wait: Option<NonZero<u64>>,
    pub(super) order: Order,
    /// Which requests may wait; all if not set.
    pub(super) least: Option<u8>,
}

impl LineOptions {
    pub(crate) fn set_max_wait(&mut self, max_wait: Duration) {
        self.max_wait = Some(NonZero::new(nanos(max_wait)).unwrap_or(NonZero::<u64>::MIN));
    }

    pub(super) fn longest(&self) -> Duration {
        self.max_wait
            .map_or(Duration::MAX, |ns| Duration::from_nanos(ns.get()))
    }
}
