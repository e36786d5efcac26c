//! Two counters for `metrics`, labelled with the name of the limit: `tower_throttle_requests_total`
//! also with the fate of the request, and `tower_throttle_overflow_total` with what was done where
//! the limiter had no room.

use std::sync::{
    PoisonError, RwLock,
    atomic::{AtomicU64, Ordering},
};

use metrics::SharedString;

use crate::backend::Losses;

#[derive(Debug, Default)]
pub(super) struct MetricsRecorder {
    name: RwLock<Option<SharedString>>,
    /// The losses that were told before.
    told: [AtomicU64; 4],
}

impl MetricsRecorder {
    pub(super) fn rename(&self, name: &str) {
        let shared = SharedString::from_shared(name.into());
        *self.name.write().unwrap_or_else(PoisonError::into_inner) = Some(shared);
    }

    pub(super) fn count(&self, fate: &'static str) {
        metrics::counter!("tower_throttle_requests_total", "limit" => self.name(), "fate" => fate)
            .increment(1);
    }

    pub(super) fn lost(&self, losses: impl FnOnce() -> Losses) {
        let losses = losses();
        let lost = [
            ("evicted", losses.evicted),
            ("evicted_denied", losses.evicted_denied),
            ("denied", losses.denied),
            ("shared", losses.shared),
        ];
        for (told, (what, lost)) in self.told.iter().zip(lost) {
            if lost <= told.load(Ordering::Relaxed) {
                continue;
            }
            // Of threads that see the same loss one gets to tell it.
            let new = lost.saturating_sub(told.fetch_max(lost, Ordering::Relaxed));
            if new > 0 {
                metrics::counter!("tower_throttle_overflow_total", "limit" => self.name(), "what" => what)
                    .increment(new);
            }
        }
    }

    fn name(&self) -> SharedString {
        let name = self.name.read().unwrap_or_else(PoisonError::into_inner);
        name.clone()
            .unwrap_or_else(|| SharedString::const_str("default"))
    }
}
