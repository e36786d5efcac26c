//! Metrics labelled with the name of the limit: `tower_throttle_requests_total` also with the outcome
//! of the request, `tower_throttle_queue_wait_seconds`, `tower_throttle_overflow_total` with what
//! the backend did because it was full, and the gauges of what a limit holds.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use metrics::SharedString;

use super::gauges::Gauges;
use crate::backend::Losses;

#[derive(Debug, Default)]
pub(super) struct MetricsRecorder {
    /// `None` for `default`.
    name: Option<SharedString>,
    /// The losses that were added to the counter so far, under any name.
    reported: Arc<[AtomicU64; 5]>,
}

impl MetricsRecorder {
    pub(super) fn renamed(&self, name: &str) -> Self {
        Self {
            name: Some(SharedString::from_shared(name.into())),
            reported: Arc::clone(&self.reported),
        }
    }

    pub(super) fn count(&self, outcome: &'static str) {
        metrics::counter!("tower_throttle_requests_total", "limit" => self.name(), "outcome" => outcome)
            .increment(1);
    }

    pub(super) fn record_queue_wait(&self, wait: Duration) {
        metrics::histogram!("tower_throttle_queue_wait_seconds", "limit" => self.name())
            .record(wait);
    }

    pub(super) fn record_losses(&self, losses: impl FnOnce() -> Losses) {
        let losses = losses();
        let lost = [
            ("evicted", losses.evicted),
            ("evicted_denied", losses.evicted_denied),
            ("denied", losses.denied),
            ("shared", losses.shared),
            ("lost_charge", losses.lost_charges),
        ];
        for (reported, (what, lost)) in self.reported.iter().zip(lost) {
            if lost <= reported.load(Ordering::Relaxed) {
                continue;
            }
            // Of threads that see the same loss, one reports it.
            let new = lost.saturating_sub(reported.fetch_max(lost, Ordering::Relaxed));
            if new > 0 {
                metrics::counter!("tower_throttle_overflow_total", "limit" => self.name(), "what" => what)
                    .increment(new);
            }
        }
    }

    fn name(&self) -> SharedString {
        self.name
            .clone()
            .unwrap_or_else(|| SharedString::const_str("default"))
    }
}

/// Sets the gauges of a limit.
pub(super) fn set(limit: &Arc<str>, gauges: Gauges) {
    // No gauge needs more: beyond 2^32, it shows that.
    let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let keys = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let name = || SharedString::from_shared(Arc::clone(limit));
    metrics::gauge!("tower_throttle_waiting", "limit" => name()).set(short(gauges.waiting));
    if let Some((in_flight, most)) = gauges.in_flight {
        metrics::gauge!("tower_throttle_in_flight", "limit" => name()).set(short(in_flight));
        metrics::gauge!("tower_throttle_in_flight_limit", "limit" => name()).set(short(most));
    }
    if let Some((live, capacity)) = gauges.table {
        metrics::gauge!("tower_throttle_table_keys", "limit" => name()).set(keys(live));
        metrics::gauge!("tower_throttle_table_capacity", "limit" => name()).set(keys(capacity));
    }
    if let Some(percent) = gauges.largest_use_percent {
        metrics::gauge!("tower_throttle_largest_use_percent", "limit" => name())
            .set(short(percent));
    }
}
