//! Events for `tracing`, with the target `tower_throttle`.
//!
//! Events about single requests are `DEBUG`: a flood of denied requests must not fill a log. An
//! outage is one `WARN`, its end one `INFO`. A mistake in the setup is one `WARN` per layer.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::respond::Event;

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

    #[inline]
    pub(super) fn observe(&self, event: Event<'_>, shadow: bool) {
        let decides = matches!(
            event,
            Event::Admitted(_) | Event::Waits(..) | Event::Denied(_)
        );
        if decides
            && self.failing.load(Ordering::Relaxed)
            && self.failing.swap(false, Ordering::Relaxed)
        {
            tracing::info!(target: "tower_throttle", limit = self.name(), "the limiter decides again");
        }
        if !matches!(event, Event::Admitted(_) | Event::Skipped) {
            self.log(event, shadow);
        }
    }

    fn log(&self, event: Event<'_>, shadow: bool) {
        let limit = self.name();
        match event {
            Event::Waits(decision, _) => tracing::debug!(
                target: "tower_throttle",
                limit,
                wait = ?decision.wait(),
                shadow,
                "a request waits for its turn"
            ),
            Event::Denied(denied) => tracing::debug!(
                target: "tower_throttle",
                limit,
                policy = denied.decision().map(|decision| decision.policy),
                retry_after = ?denied.retry_after(),
                shadow,
                "a request was denied"
            ),
            Event::Rejected(rejection) => {
                // A mistake in the server, such as no peer addresses: it concerns every request.
                if rejection.status().is_server_error() && is_first(&self.server_rejection_logged) {
                    tracing::error!(
                        target: "tower_throttle",
                        limit,
                        status = rejection.status().as_u16(),
                        "{rejection} (logged once)"
                    );
                }
                tracing::debug!(target: "tower_throttle", limit, shadow, "a request had no key");
            }
            Event::StoreError(error) if is_first(&self.failing) => tracing::warn!(
                target: "tower_throttle",
                limit,
                %error,
                transient = error.is_transient(),
                "the limiter cannot decide"
            ),
            Event::StoreError(error) => {
                tracing::debug!(target: "tower_throttle", limit, %error, "no decision");
            }
            Event::UnreadProxyHeader if is_first(&self.unread_proxy_header_logged) => {
                tracing::warn!(
                    target: "tower_throttle",
                    limit,
                    "a request carries the client's address in a proxy header (X-Forwarded-For or \
                     Forwarded) that the key of this layer ignores. If the application is behind a \
                     proxy, all clients share the limit of the proxy's address: set \
                     `ClientIp::x_forwarded_for().trusting([..])` with the networks of your proxies, \
                     as \"Behind a proxy\" in the documentation of `ClientIp` says (logged once). See \
                     https://docs.rs/tower-throttle/latest/tower_throttle/guide/proxies/index.html#one-limit-for-all-clients"
                );
            }
            Event::Admitted(_) | Event::Skipped | Event::UnreadProxyHeader => {}
        }
    }

    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("default")
    }
}

fn is_first(logged: &AtomicBool) -> bool {
    !logged.swap(true, Ordering::Relaxed)
}
