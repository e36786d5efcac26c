//! Who decides is reported when it changes, to logs and metrics where the features for them are on.

/// A change of who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SwitchEvent {
    /// A server is left alone, because calls in a row failed.
    #[cfg(feature = "redis")]
    BreakerOpened,
    /// One call goes to see whether it answers again.
    #[cfg(feature = "redis")]
    BreakerProbed,
    /// It is asked again.
    #[cfg(feature = "redis")]
    BreakerClosed,
    /// The second limiter of a fallback decides.
    FallbackOn,
    /// The first one does again.
    FallbackOff,
}

/// For each change once.
pub(super) fn switched(switch: SwitchEvent) {
    trace(switch);
    count(switch);
}

#[cfg(feature = "tracing")]
fn trace(switch: SwitchEvent) {
    match switch {
        #[cfg(feature = "redis")]
        SwitchEvent::BreakerOpened => {
            tracing::warn!(target: "tower_throttle", "Redis does not answer and is left alone");
        }
        #[cfg(feature = "redis")]
        SwitchEvent::BreakerProbed => {
            tracing::debug!(target: "tower_throttle", "one call asks whether Redis answers");
        }
        #[cfg(feature = "redis")]
        SwitchEvent::BreakerClosed => {
            tracing::info!(target: "tower_throttle", "Redis answers again")
        }
        SwitchEvent::FallbackOn => {
            tracing::warn!(target: "tower_throttle", "the second limiter decides");
        }
        SwitchEvent::FallbackOff => {
            tracing::info!(target: "tower_throttle", "the first limiter decides again");
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
