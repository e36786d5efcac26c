//! The permits of a limit, and what changes their number.

use std::hash::Hash;

use super::adaptive::Adaptive;
use super::controller::Controller;
use super::request::{PermitRequest, part_of};
use super::table::PermitTable;
use crate::error::ConfigError;
use crate::key::Priority;
use crate::queue::Order;

/// The permits of all keys of a [`ConcurrencyLimitLayer`](super::ConcurrencyLimitLayer). A
/// [`Handle`](crate::Handle) reads and changes them.
#[derive(Debug)]
pub struct Permits {
    pub(super) table: PermitTable,
    /// Changes the limit of the table, if that is adaptive.
    pub(super) controller: Option<Controller>,
}

/// Refuses a limit that nothing would ever pass.
pub(super) fn checked_limit(limit: u32) -> Result<u64, ConfigError> {
    if limit == 0 {
        let allowed = "a number from 1 to 4294967295";
        return Err(ConfigError::out_of_range("limit", limit, allowed));
    }
    Ok(limit.into())
}

impl Permits {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            table: PermitTable::new(limit),
            controller: None,
        }
    }

    /// Permits whose limit follows latency.
    pub(super) fn adaptive(algorithm: impl Adaptive) -> Self {
        let (controller, limit) = Controller::new(algorithm);
        Self {
            controller: Some(controller),
            ..Self::new(limit)
        }
    }

    /// A request of `key` for so many units.
    #[inline]
    pub(crate) fn request<K>(&self, key: &K, units: u64, priority: Priority) -> PermitRequest
    where
        K: Hash + ?Sized,
    {
        PermitRequest {
            id: self.table.key_id(key),
            units,
            priority,
            reserved: 0,
            order: Order::default(),
        }
    }

    /// The units of `key` in flight.
    pub(crate) fn in_flight<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        self.table.look(self.table.key_id(key)).0
    }

    /// Changes a limit that is not adaptive, or returns an error.
    pub(crate) fn set_limit(&self, limit: u32) -> Result<(), ConfigError> {
        if self.is_adaptive() {
            return Err(ConfigError::Unsupported {
                what: "set_limit on an adaptive limit",
                instead: "set its bounds with `between` when it is made",
            });
        }
        self.table.set_limit(checked_limit(limit)?);
        Ok(())
    }

    /// Whether the limit follows latency.
    #[inline]
    pub(super) fn is_adaptive(&self) -> bool {
        self.controller.is_some()
    }

    /// Whether a request can pass at all. One of more units than the limit is refused for good, unless
    /// the limit is adaptive: that may rise, or stay low for long, so the request passes when it is
    /// alone.
    #[inline]
    pub(super) fn may_pass(&self, request: PermitRequest) -> bool {
        request.units <= part_of(self.table.limit(), request.reserved) || self.is_adaptive()
    }
}
