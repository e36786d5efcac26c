//! Metrics labelled with the name of the limit: `tower_throttle_requests_total` also with the outcome
//! of the request, `tower_throttle_queue_wait_seconds`, `tower_throttle_overflow_total` with what
//! the backend did because it was full, and the gauges of what a limit holds.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use metrics::SharedString;

use super::gauges::Gauges;
use super::outcome::Outcome;
use crate::backend::Losses;
use crate::respond::Event;

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

    pub(super) fn observe(&self, event: Event<'_>, shadow: bool) {
        if let Some(outcome) = Outcome::of(event, shadow).name() {
            let limit = self.name();
            metrics::counter!("tower_throttle_requests_total", "limit" => limit, "outcome" => outcome)
                .increment(1);
        }
        if let Event::Waits(_, Some(wait)) = event {
            metrics::histogram!("tower_throttle_queue_wait_seconds", "limit" => self.name())
                .record(wait);
        }
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
                let limit = self.name();
                metrics::counter!("tower_throttle_overflow_total", "limit" => limit, "what" => what)
                    .increment(new);
            }
        }
    }

    fn name(&self) -> SharedString {
        let name = self.name.clone();
        name.unwrap_or_else(|| SharedString::const_str("default"))
    }
}

/// Sets the gauges of a limit.
pub(super) fn set(limit: &Arc<str>, gauges: Gauges) {
    let limit = || SharedString::from_shared(Arc::clone(limit));
    // No gauge needs more: beyond 2^32, it shows that.
    let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let keys = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    metrics::gauge!("tower_throttle_waiting", "limit" => limit()).set(short(gauges.waiting));
    if let Some((in_flight, most)) = gauges.in_flight {
        metrics::gauge!("tower_throttle_in_flight", "limit" => limit()).set(short(in_flight));
        metrics::gauge!("tower_throttle_in_flight_limit", "limit" => limit()).set(short(most));
    }
    if let Some((live, capacity)) = gauges.table {
        metrics::gauge!("tower_throttle_table_keys", "limit" => limit()).set(keys(live));
        metrics::gauge!("tower_throttle_table_capacity", "limit" => limit()).set(keys(capacity));
    }
    if let Some(percent) = gauges.largest_use_percent {
        metrics::gauge!("tower_throttle_largest_use_percent", "limit" => limit())
            .set(short(percent));
    }
}
