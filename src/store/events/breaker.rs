//! Changes of circuit breakers.

/// A change of a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum BreakerEvent {
    /// Calls in a row failed: no more calls are sent.
    Opened,
    /// One call was sent to see whether the server replies again.
    Probed,
    /// The server replies again.
    Closed,
}

/// Reports a change of a circuit breaker of `store`.
pub(in crate::store) fn breaker_changed(store: &str, event: BreakerEvent) {
    trace(store, event);
    count(event);
}

#[cfg(feature = "tracing")]
fn trace(store: &str, event: BreakerEvent) {
    match event {
        BreakerEvent::Opened => {
            tracing::warn!(target: "tower_throttle", "{store} does not reply: the circuit breaker is open");
        }
        BreakerEvent::Probed => {
            tracing::debug!(target: "tower_throttle", "a call probes whether {store} replies");
        }
        BreakerEvent::Closed => {
            tracing::info!(target: "tower_throttle", "{store} replies again: the circuit breaker is closed");
        }
    }
}

#[cfg(not(feature = "tracing"))]
fn trace(_: &str, _: BreakerEvent) {}

#[cfg(feature = "metrics")]
fn count(event: BreakerEvent) {
    let to = match event {
        BreakerEvent::Opened => "open",
        BreakerEvent::Probed => "half_open",
        BreakerEvent::Closed => "closed",
    };
    metrics::counter!("tower_throttle_switches_total", "of" => "breaker", "to" => to).increment(1);
}

#[cfg(not(feature = "metrics"))]
fn count(_: BreakerEvent) {}
