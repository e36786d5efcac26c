//! Reports to logs and metrics, if their features are on.

#[cfg(feature = "tracing")]
mod events;
#[cfg(not(feature = "tracing"))]
#[path = "events_disabled.rs"]
mod events;
mod gauges;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(not(feature = "metrics"))]
#[path = "metrics_disabled.rs"]
mod metrics;

use std::{sync::Arc, time::Duration};

pub(crate) use self::gauges::Gauges;
use self::{events::EventLogger, metrics::MetricsRecorder};
use crate::backend::Losses;
use crate::decision::Decision;
use crate::error::{Rejection, StoreError};

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
    pub(crate) fn record_admitted(&self) {
        self.events.log_recovery();
        self.metrics.count("admitted");
    }

    #[inline]
    pub(crate) fn record_waited(&self, decision: &Decision, shadow: bool) {
        self.events.log_recovery();
        self.events.log_waited(decision, shadow);
        self.metrics
            .count(if shadow { "shadow_waited" } else { "waited" });
    }

    /// A request has joined a line, in which its turn comes after `wait`.
    pub(crate) fn record_queue_wait(&self, wait: Duration) {
        self.metrics.record_queue_wait(wait);
    }

    #[inline]
    pub(crate) fn record_denied(&self, decision: &Decision, shadow: bool) {
        self.events.log_recovery();
        self.events.log_denied(decision, shadow);
        self.metrics
            .count(if shadow { "shadow_denied" } else { "denied" });
    }

    #[inline]
    pub(crate) fn record_rejected(&self, rejection: &Rejection, shadow: bool) {
        self.events.log_rejected(rejection, shadow);
        self.metrics.count(if shadow {
            "shadow_rejected"
        } else {
            "rejected"
        });
    }

    #[inline]
    pub(crate) fn record_skipped(&self) {
        self.metrics.count("skipped");
    }

    /// What the backend evicted or denied because it was full; read only if it is measured.
    #[inline]
    pub(crate) fn record_losses(&self, losses: impl FnOnce() -> Losses) {
        self.metrics.record_losses(losses);
    }

    #[cold]
    pub(crate) fn record_unread_proxy_header(&self) {
        self.events.log_unread_proxy_header();
    }

    #[inline]
    pub(crate) fn record_store_error(&self, error: &StoreError) {
        self.events.log_store_error(error);
        self.metrics.count("store_error");
    }
}
