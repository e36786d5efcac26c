//! Events for `tracing`, with the target `tower_throttle`.
//!
//! Events about single requests are `DEBUG`: a flood of denied requests must not fill a log. An
//! outage is one `WARN`, its end one `INFO`. A mistake in the setup is one `WARN` per layer.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::decision::Decision;
use crate::error::{Rejection, StoreError};

#[derive(Debug, Default)]
pub(super) struct EventLogger {
    /// `None` for `default`.
    name: Option<Box<str>>,
    failing: AtomicBool,
    // Mistakes that do not go away are logged once.
    server_rejection_logged: AtomicBool,
    unread_proxy_header_logged: AtomicBool,
}

impl EventLogger {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: Some(name.into()),
            ..Self::default()
        }
    }

    pub(super) fn log_recovery(&self) {
        if self.failing.load(Ordering::Relaxed) && self.failing.swap(false, Ordering::Relaxed) {
            tracing::info!(target: "tower_throttle", limit = self.name(), "the limiter decides again");
        }
    }

    pub(super) fn log_waited(&self, decision: &Decision, shadow: bool) {
        tracing::debug!(
            target: "tower_throttle",
            limit = self.name(),
            wait = ?decision.wait(),
            shadow,
            "a request waits for its turn"
        );
    }

    pub(super) fn log_denied(&self, decision: &Decision, shadow: bool) {
        tracing::debug!(
            target: "tower_throttle",
            limit = self.name(),
            policy = decision.policy,
            retry_after = ?decision.retry_after,
            shadow,
            "a request was denied"
        );
    }

    pub(super) fn log_rejected(&self, rejection: &Rejection, shadow: bool) {
        // A mistake in the server, such as no peer addresses: it concerns every request.
        if rejection.status().is_server_error()
            && !self.server_rejection_logged.swap(true, Ordering::Relaxed)
        {
            tracing::error!(
                target: "tower_throttle",
                limit = self.name(),
                status = rejection.status().as_u16(),
                "{rejection} (logged once)"
            );
        }
        tracing::debug!(target: "tower_throttle", limit = self.name(), shadow, "a request had no key");
    }

    pub(super) fn log_store_error(&self, error: &StoreError) {
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

    pub(super) fn log_unread_proxy_header(&self) {
        if !self
            .unread_proxy_header_logged
            .swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                target: "tower_throttle",
                limit = self.name(),
                "a request carries the client's address in a proxy header (X-Forwarded-For or \
                 Forwarded) that the key of this layer ignores. If the application is behind a \
                 proxy, all clients share the limit of the proxy's address: set \
                 `ClientIp::x_forwarded_for().trusting([..])` with the networks of your proxies, \
                 as \"Behind a proxy\" in the documentation of `ClientIp` says (logged once). See \
                 https://docs.rs/tower-throttle/latest/tower_throttle/guide/proxies/index.html#one-limit-for-all-clients"
            );
        }
    }

    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("default")
    }
}
