//! Events of stores, for logs (feature `tracing`) and metrics (feature `metrics`).
//!
//! A store that fails and recovers many times per second, or a flood of keys, must not fill a log:
//! after four events at once, one is logged per ten seconds, with the number that was left out.

#[cfg(feature = "_remote")]
mod breaker;
#[cfg(feature = "tracing")]
mod limited;
#[cfg(not(feature = "tracing"))]
mod unlogged;

#[cfg(feature = "_remote")]
pub(super) use self::breaker::{BreakerEvent, breaker_changed};
#[cfg(feature = "tracing")]
pub(super) use self::limited::{OverflowLog, SwitchLog};
#[cfg(not(feature = "tracing"))]
pub(super) use self::unlogged::{OverflowLog, SwitchLog};

/// A change of a fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SwitchEvent {
    /// The secondary backend decides.
    FallbackOn,
    /// The primary backend decides again.
    FallbackOff,
}

#[cfg(feature = "tracing")]
fn trace(switch: SwitchEvent, left_out: u64) {
    match switch {
        SwitchEvent::FallbackOn => {
            tracing::warn!(target: "tower_throttle", left_out, "the fallback decides");
        }
        SwitchEvent::FallbackOff => {
            tracing::info!(target: "tower_throttle", left_out, "the primary store decides again");
        }
    }
}

#[cfg(feature = "metrics")]
pub(super) fn count(switch: SwitchEvent) {
    let to = match switch {
        SwitchEvent::FallbackOn => "on",
        SwitchEvent::FallbackOff => "off",
    };
    metrics::counter!("tower_throttle_switches_total", "of" => "fallback", "to" => to).increment(1);
}

#[cfg(not(feature = "metrics"))]
pub(super) fn count(_: SwitchEvent) {}
