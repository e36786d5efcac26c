//! Events of stores, for logs (feature `tracing`) and metrics (feature `metrics`).
//!
//! A store that fails and recovers many times per second, or a flood of keys, must not fill a log:
//! after four events at once, one is logged per ten seconds, with the number that was left out.

#[cfg(feature = "tracing")]
mod limited;
#[cfg(not(feature = "tracing"))]
mod unlogged;

#[cfg(feature = "tracing")]
pub(super) use self::limited::{OverflowLog, SwitchLog};
#[cfg(not(feature = "tracing"))]
pub(super) use self::unlogged::{OverflowLog, SwitchLog};

/// A change of a circuit breaker or of a fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SwitchEvent {
    /// Calls in a row failed: no more calls are sent.
    #[cfg(feature = "redis")]
    BreakerOpened,
    /// One call was sent to see whether the server replies again.
    #[cfg(feature = "redis")]
    BreakerProbed,
    /// The server replies again.
    #[cfg(feature = "redis")]
    BreakerClosed,
    /// The secondary backend decides.
    FallbackOn,
    /// The primary backend decides again.
    FallbackOff,
}

/// Reports a change of a circuit breaker.
#[cfg(feature = "redis")]
pub(super) fn switched(switch: SwitchEvent) {
    trace(switch, 0);
    count(switch);
}

#[cfg(feature = "tracing")]
fn trace(switch: SwitchEvent, left_out: u64) {
    match switch {
        #[cfg(feature = "redis")]
        SwitchEvent::BreakerOpened => {
            tracing::warn!(target: "tower_throttle", "Redis does not reply: the circuit breaker is open");
        }
        #[cfg(feature = "redis")]
        SwitchEvent::BreakerProbed => {
            tracing::debug!(target: "tower_throttle", "a call probes whether Redis replies");
        }
        #[cfg(feature = "redis")]
        SwitchEvent::BreakerClosed => {
            tracing::info!(target: "tower_throttle", "Redis replies again: the circuit breaker is closed");
        }
        SwitchEvent::FallbackOn => {
            tracing::warn!(target: "tower_throttle", left_out, "the fallback decides");
        }
        SwitchEvent::FallbackOff => {
            tracing::info!(target: "tower_throttle", left_out, "the primary store decides again");
        }
    }
}

#[cfg(all(not(feature = "tracing"), feature = "redis"))]
fn trace(_: SwitchEvent, _: u64) {}

#[cfg(feature = "metrics")]
pub(super) fn count(switch: SwitchEvent) {
    let (of, to) = match switch {
        #[cfg(feature = "redis")]
        SwitchEvent::BreakerOpened => ("breaker", "open"),
        #[cfg(feature = "redis")]
        SwitchEvent::BreakerProbed => ("breaker", "half_open"),
        #[cfg(feature = "redis")]
        SwitchEvent::BreakerClosed => ("breaker", "closed"),
        SwitchEvent::FallbackOn => ("fallback", "on"),
        SwitchEvent::FallbackOff => ("fallback", "off"),
    };
    metrics::counter!("tower_throttle_switches_total", "of" => of, "to" => to).increment(1);
}

#[cfg(not(feature = "metrics"))]
pub(super) fn count(_: SwitchEvent) {}
