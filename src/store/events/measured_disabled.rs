//! Without the feature `metrics`, nothing is measured.

use std::time::Duration;

use crate::clock::Tick;
use crate::error::StoreError;

#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct RemoteMetrics(
    #[expect(dead_code, reason = "same surface as the module that measures")]
    pub(in crate::store)  &'static str,
);

#[expect(
    clippy::unused_self,
    reason = "same surface as the module that measures"
)]
impl RemoteMetrics {
    #[inline]
    pub(in crate::store) fn call_ended(self, _: Tick, _: Duration, _: Option<&StoreError>) {}

    #[inline]
    pub(in crate::store) fn batch_sent(self, _: usize) {}

    #[inline]
    pub(in crate::store) fn call_queued(self) {}

    #[inline]
    pub(in crate::store) fn calls_dequeued(self, _: usize) {}

    #[cfg(any(feature = "redis", feature = "cas"))]
    #[inline]
    pub(in crate::store) fn denied_by_cache(self) {}

    #[cfg(feature = "cas")]
    #[inline]
    pub(in crate::store) fn fleet_lag(self, _: Duration) {}

    #[cfg(any(feature = "redis", feature = "postgres", feature = "cassandra"))]
    pub(in crate::store) fn connected(self, _: bool) {}

    pub(in crate::store) fn breaker_changed(self, _: &str, _: bool) {}

    pub(in crate::store) fn breaker_probed(self) {}
}
