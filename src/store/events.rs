//! Events of stores, for logs (feature `tracing`) and metrics (feature `metrics`).

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

/// Reports an event.
pub(super) fn switched(switch: SwitchEvent) {
    trace(switch);
    count(switch);
}

#[cfg(feature = "tracing")]
fn trace(switch: SwitchEvent) {
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
            tracing::warn!(target: "tower_throttle", "the fallback decides");
        }
        SwitchEvent::FallbackOff => {
            tracing::info!(target: "tower_throttle", "the primary store decides again");
        }
    }
}

#[cfg(not(feature = "tracing"))]
fn trace(_: SwitchEvent) {}

#[cfg(feature = "metrics")]
fn count(switch: SwitchEvent) {
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
fn count(_: SwitchEvent) {}
