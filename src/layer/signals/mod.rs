//! What is reported to logs and metrics, where the features for them are on.

#[cfg(feature = "metrics")]
mod metered;
#[cfg(feature = "tracing")]
mod traced;
#[cfg(not(feature = "metrics"))]
mod unmetered;
#[cfg(not(feature = "tracing"))]
mod untraced;

#[cfg(feature = "metrics")]
use self::metered::Metered;
#[cfg(feature = "tracing")]
use self::traced::Traced;
#[cfg(not(feature = "metrics"))]
use self::unmetered::Metered;
#[cfg(not(feature = "tracing"))]
use self::untraced::Traced;

use crate::decision::Decision;
use crate::error::StoreError;
use crate::limiter::Losses;

/// Names of limits and fates only; never a key.
#[derive(Debug, Default)]
pub(super) struct Signals {
    traced: Traced,
    metered: Metered,
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
    pub(super) fn rejected(&self) {
        self.traced.rejected();
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
