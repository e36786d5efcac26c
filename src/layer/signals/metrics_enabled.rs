//! Two counters for `metrics`, labelled with the name of the limit: `tower_throttle_requests_total`
//! also with the outcome of the request, and `tower_throttle_overflow_total` with what the backend
//! did because it was full.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use metrics::SharedString;

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
