//! What happens to calls to a store.

use std::time::Duration;

use super::count_switch;
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::StoreError;
use crate::telemetry::{log, measure};

/// The metrics of a kind of store.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct RemoteMetrics(pub(in crate::store) &'static str);

impl RemoteMetrics {
    /// A call ended, as its caller sees it.
    pub(in crate::store) fn call_ended(
        self,
        called_at: Tick,
        deadline: Duration,
        error: Option<&StoreError>,
    ) {
        if error.is_some_and(StoreError::is_not_sent) {
            return self.call_rejected();
        }
        let took = MonotonicClock.now().since(called_at);
        let outcome = match error {
            None => "ok",
            Some(error) if !error.is_transient() => "permanent",
            Some(_) if took >= deadline => "timeout",
            Some(_) => "transient",
        };
        measure!(histogram "tower_throttle_store_call_seconds", ["store" = self.0, "outcome" = outcome], record(took));
        if error.is_some() {
            self.count_error(outcome);
        }
    }

    /// A call was not sent: the breaker is open, or too many calls are queued.
    #[cold]
    pub(in crate::store) fn call_rejected(self) {
        self.count_error("rejected");
    }

    fn count_error(self, class: &'static str) {
        measure!(counter "tower_throttle_store_errors_total", ["store" = self.0, "class" = class], increment(1));
    }

    /// So many calls were sent together.
    pub(in crate::store) fn batch_sent(self, calls: usize) {
        let calls = u32::try_from(calls).unwrap_or(u32::MAX);
        measure!(histogram "tower_throttle_store_batch_size", ["store" = self.0], record(calls));
    }

    /// A request was denied without a call.
    pub(in crate::store) fn denied_by_cache(self) {
        measure!(counter "tower_throttle_deny_cache_hits_total", ["store" = self.0], increment(1));
    }

    /// The oldest use that the store may not know of has waited for so long, of a limit whose keys begin with `{prefix:name:`.
    pub(in crate::store) fn fleet_lag(self, start: &str, lag: Duration) {
        let limit = start.split(':').nth(1).unwrap_or_default().to_owned();
        measure!(gauge "tower_throttle_fleet_lag_seconds", ["store" = self.0, "limit" = limit], set(lag));
    }

    /// An attempt to connect ended.
    #[cfg(any(feature = "redis", feature = "postgres", feature = "cassandra"))]
    pub(in crate::store) fn connected(self, is_connected: bool) {
        let outcome = if is_connected { "ok" } else { "failed" };
        measure!(counter "tower_throttle_store_connects_total", ["store" = self.0, "outcome" = outcome], increment(1));
    }

    /// The breaker of a server opened or closed.
    pub(in crate::store) fn breaker_changed(self, server: &str, is_open: bool) {
        let change = if is_open { 1.0 } else { -1.0 };
        let server = server.to_owned();
        measure!(gauge "tower_throttle_breakers_open", ["store" = self.0, "server" = server], increment(change));
        count_switch("breaker", if is_open { "open" } else { "closed" });
    }

    /// An open breaker let a call through, to see whether the server replies again.
    pub(in crate::store) fn breaker_probed(self) {
        log!(debug, [], "a call probes whether {} replies", self.0);
        count_switch("breaker", "half_open");
    }
}
