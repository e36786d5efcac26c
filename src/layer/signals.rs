//! Reports to logs and metrics, if their features are on: names of limits and outcomes only, never a key.
//!
//! Events about single requests are `DEBUG`: a flood of denied requests must not fill a log. An
//! outage is one `WARN`, its end one `INFO`. A mistake in the setup is one `WARN` per limit.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use super::counts::Outcome;
use crate::backend::{Fullness, Losses};
use crate::respond::Event;
use crate::telemetry::{as_debug, as_text, log, measure};

/// What was logged and measured of a limit so far, under any name.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    failing: AtomicBool,
    // Mistakes that do not go away are logged once.
    server_rejection_logged: AtomicBool,
    unread_proxy_header_logged: AtomicBool,
    /// The losses that were added to the counter.
    reported: [AtomicU64; 5],
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
        let decides = matches!(
            event,
            Event::Admitted(_) | Event::Waits(..) | Event::Denied(_)
        );
        if decides
            && self.failing.load(Ordering::Relaxed)
            && self.failing.swap(false, Ordering::Relaxed)
        {
            log!(info, [limit = limit], "the limiter decides again");
        }
        if !matches!(event, Event::Admitted(_) | Event::Skipped) {
            self.log(limit, event, shadow);
        }
    }

    fn log(&self, limit: &str, event: Event<'_>, shadow: bool) {
        match event {
            Event::Waits(decision, _) => log!(
                debug,
                [
                    limit = limit,
                    wait = as_debug(decision.wait()),
                    shadow = shadow
                ],
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
            Event::Admitted(_) | Event::Skipped | Event::UnreadProxyHeader => {}
        }
    }

    /// Measures what the backend evicted or denied because it was full.
    #[inline]
    pub(super) fn measure_losses(&self, limit: &Arc<str>, losses: impl FnOnce() -> Losses) {
        if cfg!(feature = "metrics") {
            self.measure_lost(limit, losses());
        }
    }

    fn measure_lost(&self, limit: &Arc<str>, losses: Losses) {
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
                let limit = Arc::clone(limit);
                measure!(counter "tower_throttle_overflow_total", ["limit" = limit, "what" = what], increment(new));
            }
        }
    }
}

fn measure_event(limit: &Arc<str>, event: Event<'_>, shadow: bool) {
    let limit = || Arc::clone(limit);
    if let Some(outcome) = Outcome::of(event, shadow).name() {
        measure!(counter "tower_throttle_requests_total", ["limit" = limit(), "outcome" = outcome], increment(1));
    }
    if let Event::Waits(_, Some(wait)) = event {
        measure!(histogram "tower_throttle_queue_wait_seconds", ["limit" = limit()], record(wait));
    }
}

fn is_first(logged: &AtomicBool) -> bool {
    !logged.swap(true, Ordering::Relaxed)
}

/// What a limit holds at one moment, for operators who read it from time to time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gauges {
    pub(crate) waiting: u64,
    /// The units in flight, and the limit.
    pub(crate) in_flight: Option<(u64, u64)>,
    pub(crate) table: Option<(usize, usize)>,
    pub(crate) largest_use_percent: Option<u64>,
}

impl Gauges {
    pub(crate) fn of(waiting: u64, fullness: Option<Fullness>) -> Self {
        Self {
            waiting,
            in_flight: None,
            table: fullness.map(|full| (full.keys, full.capacity)),
            largest_use_percent: fullness.map(|full| full.largest_use_percent),
        }
    }

    pub(crate) fn set(self, limit: &Arc<str>) {
        let limit = || Arc::clone(limit);
        // No gauge needs more: beyond 2^32, it shows that.
        let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let keys = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        measure!(gauge "tower_throttle_waiting", ["limit" = limit()], set(short(self.waiting)));
        if let Some((in_flight, most)) = self.in_flight {
            measure!(gauge "tower_throttle_in_flight", ["limit" = limit()], set(short(in_flight)));
            measure!(gauge "tower_throttle_in_flight_limit", ["limit" = limit()], set(short(most)));
        }
        if let Some((live, capacity)) = self.table {
            measure!(gauge "tower_throttle_table_keys", ["limit" = limit()], set(keys(live)));
            measure!(gauge "tower_throttle_table_capacity", ["limit" = limit()], set(keys(capacity)));
        }
        if let Some(percent) = self.largest_use_percent {
            measure!(gauge "tower_throttle_largest_use_percent", ["limit" = limit()], set(short(percent)));
        }
    }
}
