//! Who decides is reported when it changes, to logs and metrics where the features for them are on.

/// A change of who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Switch {
    /// A server is left alone, because calls in a row failed.
    #[cfg(feature = "redis")]
    Opened,
    /// One call goes to see whether it answers again.
    #[cfg(feature = "redis")]
    Probed,
    /// It is asked again.
    #[cfg(feature = "redis")]
    Closed,
    /// The second limiter of a fallback decides.
    Covers,
    /// The first one does again.
    Recovered,
}

/// For each change once.
pub(super) fn switched(switch: Switch) {
    trace(switch);
    count(switch);
}

#[cfg(feature = "tracing")]
fn trace(switch: Switch) {
    match switch {
        #[cfg(feature = "redis")]
        Switch::Opened => {
            tracing::warn!(target: "tower_throttle", "Redis does not answer and is left alone");
        }
        #[cfg(feature = "redis")]
        Switch::Probed => {
            tracing::debug!(target: "tower_throttle", "one call asks whether Redis answers");
        }
        #[cfg(feature = "redis")]
        Switch::Closed => tracing::info!(target: "tower_throttle", "Redis answers again"),
        Switch::Covers => {
            tracing::warn!(target: "tower_throttle", "the second limiter decides");
        }
        Switch::Recovered => {
            tracing::info!(target: "tower_throttle", "the first limiter decides again");
        }
    }
}

#[cfg(not(feature = "tracing"))]
fn trace(_: Switch) {}

#[cfg(feature = "metrics")]
fn count(switch: Switch) {
    let (of, to) = match switch {
        #[cfg(feature = "redis")]
        Switch::Opened => ("breaker", "open"),
        #[cfg(feature = "redis")]
        Switch::Probed => ("breaker", "half_open"),
        #[cfg(feature = "redis")]
        Switch::Closed => ("breaker", "closed"),
        Switch::Covers => ("fallback", "on"),
        Switch::Recovered => ("fallback", "off"),
    };
    metrics::counter!("tower_throttle_switches_total", "of" => of, "to" => to).increment(1);
}

#[cfg(not(feature = "metrics"))]
fn count(_: Switch) {}
