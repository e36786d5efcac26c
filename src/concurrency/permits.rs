//! The permits of a limit, and what changes their number.

use std::{fmt, hash::Hash, sync::Arc, task::Waker, time::Duration};

use super::adaptive::{Adaptive, RequestEnd, Samples};
use super::request::{PermitRequest, part_of};
use super::table::PermitTable;
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::ConfigError;
use crate::queue::{Lines, Order, Place};
use crate::sync::{Mutex, lock};

/// The permits of all keys of a [`ConcurrencyLimitLayer`](super::ConcurrencyLimitLayer). A
/// [`Handle`](crate::Handle) reads and changes them.
pub struct Permits {
    pub(super) table: PermitTable,
    /// The requests that wait.
    pub(super) lines: Arc<Lines>,
    /// What changes the limit of the table, if that is adaptive, and the samples of the window.
    controller: Option<Mutex<(Box<dyn Adaptive>, Samples)>>,
}

/// How long a window is, and how many samples it has at least.
const WINDOW: Duration = Duration::from_secs(1);
const SAMPLES: u64 = 10;

/// Refuses a limit that nothing would ever pass.
pub(super) fn checked_limit(limit: u32) -> Result<u64, ConfigError> {
    if limit == 0 {
        let allowed = "a number from 1 to 4294967295";
        return Err(ConfigError::out_of_range("limit", limit, allowed));
    }
    Ok(limit.into())
}

impl Permits {
    /// If they are those of a fleet, none is granted without a lease.
    pub(super) fn new(limit: u64, is_fleet: bool) -> Self {
        Self {
            table: PermitTable::new(limit, is_fleet),
            lines: Arc::default(),
            controller: None,
        }
    }

    /// Permits whose limit follows latency.
    pub(super) fn adaptive(algorithm: impl Adaptive) -> Self {
        let limit = algorithm.limit().max(1);
        let samples = Samples::new(WINDOW, SAMPLES);
        Self {
            controller: Some(Mutex::new((Box::new(algorithm), samples))),
            ..Self::new(limit.into(), false)
        }
    }

    /// Adds a request of an adaptive limit that began at a moment with so many in flight, and has left `reserved`
    /// permits free.
    pub(super) fn record(
        &self,
        (began, in_flight): (Tick, u64),
        reserved: u32,
        outcome: RequestEnd,
    ) {
        let (limit, now) = (self.table.limit(), MonotonicClock.now());
        // Requests that fill the part of the limit that they may use have filled the limit.
        let in_flight = in_flight.saturating_mul(limit) / part_of(limit, reserved);
        let Some(mut controller) = self.controller.as_ref().map(lock) else {
            return;
        };
        let (algorithm, samples) = &mut *controller;
        let ended = samples.record(now, now.since(began), in_flight, outcome);
        if let Some(window) = &ended {
            algorithm.next(window);
            // While no other window can end.
            self.table.store_limit(algorithm.limit().max(1).into());
        }
        drop(controller);
        if ended.is_some() {
            self.lines.tell_all();
        }
    }

    /// A request that had a permit has ended. Those that wait may have it.
    #[inline]
    pub(super) fn release(&self, request: PermitRequest) {
        let keeper = self.table.release(request);
        if self.lines.waiting() > 0 {
            self.lines.tell(request.id);
        }
        keeper.into_iter().for_each(Waker::wake);
    }

    /// Leaves the line. A permit that was granted at the last moment is released.
    pub(super) fn leave(&self, request: PermitRequest, queued: Place) {
        if self.lines.leave(request.id, queued).is_some() {
            self.release(request);
        }
        self.table.wake_keeper(request.id);
    }

    /// A request of `key` for so many units.
    #[inline]
    pub(crate) fn request<K>(&self, key: &K, units: u64, priority: u8) -> PermitRequest
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
            return Err(ConfigError::unsupported(
                "set_limit on an adaptive limit",
                "set its bounds with `between` when it is made",
            ));
        }
        self.table.store_limit(checked_limit(limit)?);
        self.lines.tell_all();
        self.table.wake_keepers();
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

/// Manual impl: an algorithm need not be `Debug`.
impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permits")
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}
