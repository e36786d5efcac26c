//! Events for `tracing`, with the target `tower_throttle`.
//!
//! A refused crowd must not fill a log, so single requests are `DEBUG`. `WARN` says that the
//! limiter has stopped deciding, and `INFO` that it decides again; once each.

use std::sync::{
    Arc, PoisonError, RwLock,
    atomic::{AtomicBool, Ordering},
};

use crate::decision::Decision;
use crate::error::{Rejection, StoreError};

#[derive(Debug, Default)]
pub(super) struct EventLogger {
    name: RwLock<Option<Arc<str>>>,
    failing: AtomicBool,
    /// Told once: it is a mistake that does not go away.
    untimed: AtomicBool,
    /// A request was rejected with a status of the server; logged once.
    misconfigured: AtomicBool,
}

impl EventLogger {
    pub(super) fn rename(&self, name: &str) {
        *self.name.write().unwrap_or_else(PoisonError::into_inner) = Some(name.into());
    }

    pub(super) fn decided(&self) {
        if self.failing.load(Ordering::Relaxed) && self.failing.swap(false, Ordering::Relaxed) {
            tracing::info!(target: "tower_throttle", limit = self.name(), "the limiter decides again");
        }
    }

    pub(super) fn waits(&self, decision: &Decision) {
        tracing::debug!(
            target: "tower_throttle",
            limit = self.name(),
            wait = ?decision.wait(),
            "a request waits for its turn"
        );
    }

    pub(super) fn denied(&self, decision: &Decision, shadow: bool) {
        tracing::debug!(
            target: "tower_throttle",
            limit = self.name(),
            policy = decision.policy,
            retry_after = ?decision.retry_after,
            shadow,
            "a request was denied"
        );
    }

    pub(super) fn rejected(&self, rejection: &Rejection) {
        // A mistake in the server, such as no peer addresses: it concerns every request.
        if rejection.status().is_server_error() && !self.misconfigured.swap(true, Ordering::Relaxed)
        {
            tracing::error!(
                target: "tower_throttle",
                limit = self.name(),
                status = rejection.status().as_u16(),
                "{rejection} (logged once)"
            );
        }
        tracing::debug!(target: "tower_throttle", limit = self.name(), "a request had no key");
    }

    pub(super) fn failed(&self, error: &StoreError) {
        if self.failing.swap(true, Ordering::Relaxed) {
            tracing::debug!(target: "tower_throttle", limit = self.name(), %error, "no decision");
        } else {
            tracing::warn!(
                target: "tower_throttle",
                limit = self.name(),
                %error,
                transient = error.is_transient(),
                "the limiter cannot decide"
            );
        }
    }

    pub(super) fn untimed(&self) {
        if !self.untimed.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                target: "tower_throttle",
                limit = self.name(),
                "a request had to wait where there is no tokio runtime with timers, and was denied; \
                 call the service in one that was built with `enable_time`, with the feature `tokio`"
            );
        }
    }

    fn name(&self) -> String {
        let name = self.name.read().unwrap_or_else(PoisonError::into_inner);
        name.as_deref().unwrap_or("default").to_owned()
    }
}
