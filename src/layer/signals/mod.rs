//! What is reported to logs and metrics, where the features for them are on.

#[cfg(not(feature = "metrics"))]
mod metrics_disabled;
#[cfg(feature = "metrics")]
mod metrics_enabled;
#[cfg(not(feature = "tracing"))]
mod tracing_disabled;
#[cfg(feature = "tracing")]
mod tracing_enabled;

#[cfg(not(feature = "metrics"))]
use self::metrics_disabled::MetricsRecorder;
#[cfg(feature = "metrics")]
use self::metrics_enabled::MetricsRecorder;
#[cfg(not(feature = "tracing"))]
use self::tracing_disabled::EventLogger;
#[cfg(feature = "tracing")]
use self::tracing_enabled::EventLogger;

use crate::backend::Losses;
use crate::decision::Decision;
use crate::error::{Rejection, StoreError};

/// Names of limits and fates only; never a key.
#[derive(Debug, Default)]
pub(super) struct Signals {
    traced: EventLogger,
    metered: MetricsRecorder,
}

impl Signals {
    pub(super) fn rename(&self, name: &str) {
        self.traced.rename(name);
        self.metered.rename(name);
    }

    #[inline]
    pub(super) fn admitted(&self) {
        self.traced.decided();
        self.metered.count("admitted");
    }

    #[inline]
    pub(super) fn waits(&self, decision: &Decision) {
        self.traced.decided();
        self.traced.waits(decision);
        self.metered.count("waited");
    }

    #[inline]
    pub(super) fn denied(&self, decision: &Decision, shadow: bool) {
        self.traced.decided();
        self.traced.denied(decision, shadow);
        self.metered
            .count(if shadow { "shadow_denied" } else { "denied" });
    }

    #[inline]
    pub(super) fn rejected(&self, rejection: &Rejection) {
        self.traced.rejected(rejection);
        self.metered.count("rejected");
    }

    #[inline]
    pub(super) fn skipped(&self) {
        self.metered.count("skipped");
    }

    /// What the limiter could not keep; asked only where it is measured.
    #[inline]
    pub(super) fn lost(&self, losses: impl FnOnce() -> Losses) {
        self.metered.lost(losses);
    }

    /// A request had to wait where there are no timers.
    #[cold]
    pub(super) fn untimed(&self) {
        self.traced.untimed();
    }

    #[inline]
    pub(super) fn failed(&self, error: &StoreError) {
        self.traced.failed(error);
        self.metered.count("store_error");
    }
}
