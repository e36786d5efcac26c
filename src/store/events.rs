//! Events of stores, for logs (feature `tracing`) and metrics (feature `metrics`).
//!
//! A store that fails and recovers many times per second, or a flood of keys, must not fill a log:
//! after four events at once, one is logged per ten seconds, with the number that was left out.

#[cfg_attr(not(feature = "tracing"), path = "events/logs_disabled.rs")]
mod logs;
#[cfg(feature = "cas")]
#[cfg_attr(not(feature = "metrics"), path = "events/measured_disabled.rs")]
mod measured;
#[cfg(feature = "cas")]
#[cfg_attr(not(feature = "tracing"), path = "events/refusals_disabled.rs")]
mod refusals;

pub(super) use self::logs::{OverflowLog, SwitchLog};
#[cfg(feature = "cas")]
pub(super) use self::{logs::breaker_probed, measured::RemoteMetrics, refusals::RefusalLog};
use crate::error::StoreError;

/// A switch between two states, of which a store may make many per second.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(feature = "tracing"),
    expect(dead_code, reason = "without a log, a switch is only counted")
)]
pub(super) struct Switch<'a> {
    /// What has switched, and to what.
    pub(super) text: (&'static str, &'static str),
    pub(super) is_to_worse: bool,
    /// The last error.
    pub(super) cause: Option<&'a StoreError>,
}

/// Counts a switch of a fallback or of a breaker.
#[cfg(feature = "metrics")]
pub(super) fn count_switch(of: &'static str, to: &'static str) {
    metrics::counter!("tower_throttle_switches_total", "of" => of, "to" => to).increment(1);
}

#[cfg(not(feature = "metrics"))]
pub(super) fn count_switch(_: &'static str, _: &'static str) {}
