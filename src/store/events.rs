//! Events of stores, for logs (feature `tracing`) and metrics (feature `metrics`).
//!
//! A store that fails and recovers many times per second, or a flood of keys, must not fill a log:
//! after four events at once, one is logged per ten seconds, with the number that was left out.

#[cfg(feature = "cas")]
mod breaker;
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
pub(super) use self::{
    breaker::{BreakerChange, BreakerEvent, breaker_probed},
    measured::RemoteMetrics,
    refusals::RefusalLog,
};

/// A change of a fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SwitchEvent {
    /// The secondary backend decides.
    FallbackOn,
    /// The primary backend decides again.
    FallbackOff,
}

/// A switch between two states, of which a store may make many per second.
pub(super) trait Switch {
    /// Logs it, and how many before it were left out.
    #[cfg(feature = "tracing")]
    fn log(&self, left_out: u64);
}

impl Switch for SwitchEvent {
    #[cfg(feature = "tracing")]
    fn log(&self, left_out: u64) {
        match self {
            Self::FallbackOn => {
                tracing::warn!(target: "tower_throttle", left_out, "the fallback decides");
            }
            Self::FallbackOff => {
                tracing::info!(target: "tower_throttle", left_out, "the primary store decides again");
            }
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
