//! Reports to logs and metrics, if their features are on.

#[cfg_attr(not(feature = "tracing"), path = "events_disabled.rs")]
mod events;
mod gauges;
#[cfg_attr(not(feature = "metrics"), path = "metrics_disabled.rs")]
mod metrics;
mod outcome;

use std::sync::Arc;

use self::{events::EventLogger, metrics::MetricsRecorder};
pub(crate) use self::{gauges::Gauges, outcome::Outcome};
use crate::backend::Losses;
use crate::respond::Event;

impl Gauges {
    /// Reports them under the name of the limit.
    pub(crate) fn set(self, limit: &Arc<str>) {
        metrics::set(limit, self);
    }
}

/// Reports names of limits and outcomes only; never a key.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    events: EventLogger,
    metrics: MetricsRecorder,
}

impl Signals {
    /// Those of the same limit under another name. Panics if the name cannot be sent in headers.
    #[track_caller]
    pub(crate) fn renamed(&self, name: &str) -> Self {
        assert!(
            !name.is_empty() && name.bytes().all(|byte| matches!(byte, b' '..=b'~')),
            "name: {name:?} is not allowed; give printable ASCII"
        );
        Self {
            events: EventLogger::new(name),
            metrics: self.metrics.renamed(name),
        }
    }

    #[inline]
    pub(crate) fn observe(&self, event: Event<'_>, shadow: bool) {
        self.events.observe(event, shadow);
        self.metrics.observe(event, shadow);
    }

    /// What the backend evicted or denied because it was full; read only if it is measured.
    #[inline]
    pub(crate) fn record_losses(&self, losses: impl FnOnce() -> Losses) {
        self.metrics.record_losses(losses);
    }
}
