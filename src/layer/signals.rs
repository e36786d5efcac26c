//! Reports to logs and metrics, if their features are on: names of limits and outcomes only, never a key.
//!
//! Events about single requests are `DEBUG`: a flood of denied requests must not fill a log. An
//! outage is one `WARN`, its end one `INFO`. A mistake in the setup is one `WARN` per limit.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::counts::Outcome;
use crate::backend::Stats;
use crate::respond::Event;
use crate::telemetry::{as_debug, as_text, log, measure};

/// What was logged of a limit so far, under any name.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    failing: AtomicBool,
    // Mistakes that do not go away are logged once.
    server_rejection_logged: AtomicBool,
    unread_proxy_header_logged: AtomicBool,
}

impl Signals {
    #[inline]
    pub(super) fn observe(&self, limit: &Arc<str>, event: Event<'_>, shadow: bool) {
        if cfg!(feature = "tracing") {
            self.log_event(limit, event, shadow);
        }
        if cfg!(feature = "metrics") {
            measure_event(limit, event, shadow);
        }
    }

    #[inline]
    fn log_event(&self, limit: &str, event: Event<'_>, shadow: bool) {
        let decides = matches!(event, Event::Admitted | Event::Waits(..) | Event::Denied(_));
        if decides
            && self.failing.load(Ordering::Relaxed)
            && self.failing.swap(false, Ordering::Relaxed)
        {
            log!(info, [limit = limit], "the limiter decides again");
        }
        if !matches!(event, Event::Admitted | Event::Skipped) {
            self.log(limit, event, shadow);
        }
    }

    fn log(&self, limit: &str, event: Event<'_>, shadow: bool) {
        match event {
            Event::Waits(wait) => log!(
                debug,
                [limit = limit, wait = as_debug(wait), shadow = shadow],
                "a request waits for its turn"
            ),
            Event::Denied(denied) => log!(
                debug,
                [
                    limit = limit,
                    policy = denied.decision().map(|decision| decision.policy),
                    retry_after = as_debug(denied.retry_after()),
                    shadow = shadow
                ],
                "a request was denied"
            ),
            Event::Rejected(rejection) => {
                // A mistake in the server, such as no peer addresses: it concerns every request.
                if rejection.status().is_server_error() && is_first(&self.server_rejection_logged) {
                    log!(
                        error,
                        [limit = limit, status = rejection.status().as_u16()],
                        "{rejection} (logged once)"
                    );
                }
                log!(
                    debug,
                    [limit = limit, shadow = shadow],
                    "a request had no key"
                );
            }
            Event::StoreError(error) if is_first(&self.failing) => log!(
                warn,
                [
                    limit = limit,
                    error = as_text(error),
                    transient = error.is_transient()
                ],
                "the limiter cannot decide"
            ),
            Event::StoreError(error) => {
                log!(
                    debug,
                    [limit = limit, error = as_text(error)],
                    "no decision"
                );
            }
            Event::UnreadProxyHeader if is_first(&self.unread_proxy_header_logged) => log!(
                warn,
                [limit = limit],
                "a request carries the client's address in a proxy header (X-Forwarded-For or \
                 Forwarded) that the key of this layer ignores. If the application is behind a \
                 proxy, all clients share the limit of the proxy's address: set \
                 `ClientIp::x_forwarded_for().trusting([..])` with the networks of your proxies, \
                 as \"Behind a proxy\" in the documentation of `ClientIp` says (logged once). See \
                 https://docs.rs/tower-throttle/latest/tower_throttle/guide/proxies/index.html#one-limit-for-all-clients"
            ),
            Event::Admitted | Event::Skipped | Event::UnreadProxyHeader => {}
        }
    }
}

/// The labels of [`Outcome`]s, but of the last, for which a request is counted besides.
const OUTCOMES: [&str; 9] = [
    "admitted",
    "waited",
    "denied",
    "rejected",
    "shadow_waited",
    "shadow_denied",
    "shadow_rejected",
    "skipped",
    "store_error",
];

fn measure_event(limit: &Arc<str>, event: Event<'_>, shadow: bool) {
    let limit = || Arc::clone(limit);
    if let Some(outcome) = OUTCOMES.get(Outcome::of(event, shadow) as usize) {
        measure!(counter "tower_throttle_requests_total", ["limit" = limit(), "outcome" = *outcome], increment(1));
    }
    if let (Event::Waits(Some(wait)), false) = (event, shadow) {
        measure!(histogram "tower_throttle_queue_wait_seconds", ["limit" = limit()], record(wait));
    }
}

fn is_first(logged: &AtomicBool) -> bool {
    !logged.swap(true, Ordering::Relaxed)
}

/// Sets gauges of a limit, by their names.
pub(crate) fn set_gauges(limit: &Arc<str>, gauges: &[(&'static str, u64)]) {
    for (name, value) in gauges {
        // No gauge needs more: beyond 2^32, it shows that.
        let (limit, short) = (Arc::clone(limit), u32::try_from(*value).unwrap_or(u32::MAX));
        measure!(gauge * name, ["limit" = limit], set(short));
    }
}

/// Sets the counters of what the table of a limit evicted or denied.
pub(super) fn set_losses(limit: &Arc<str>, stats: Stats) {
    for (what, lost) in [
        ("evicted", stats.evicted),
        ("evicted_denied", stats.evicted_denied),
        ("denied", stats.denied),
        ("lost_charge", stats.lost_charges),
    ] {
        let limit = Arc::clone(limit);
        measure!(counter "tower_throttle_overflow_total", ["limit" = limit, "what" = what], absolute(lost));
    }
}
