//! Changes of circuit breakers.

use super::Switch;
use crate::error::StoreError;

/// A change of a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum BreakerEvent {
    /// Calls in a row failed: no more calls are sent.
    Opened,
    /// The server replies again.
    Closed,
}

/// A change, and the breaker that made it.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(feature = "tracing"),
    expect(dead_code, reason = "without a log, only the event is counted")
)]
pub(in crate::store) struct BreakerChange<'a> {
    pub(in crate::store) store: &'static str,
    pub(in crate::store) event: BreakerEvent,
    /// The last error.
    pub(in crate::store) cause: Option<&'a StoreError>,
}

impl Switch for BreakerChange<'_> {
    #[cfg(feature = "tracing")]
    fn log(&self, left_out: u64) {
        let Self { store, cause, .. } = self;
        match self.event {
            BreakerEvent::Opened => {
                let cause = cause.map(tracing::field::display);
                tracing::warn!(
                    target: "tower_throttle",
                    cause,
                    left_out,
                    "{store} does not reply: the circuit breaker is open"
                );
            }
            BreakerEvent::Closed => {
                tracing::info!(
                    target: "tower_throttle",
                    left_out,
                    "{store} replies again: the circuit breaker is closed"
                );
            }
        }
    }
}

/// Logs that one call is sent to see whether the server replies again.
#[cfg_attr(
    not(feature = "tracing"),
    expect(unused_variables, reason = "nothing is logged")
)]
pub(in crate::store) fn breaker_probed(store: &'static str) {
    #[cfg(feature = "tracing")]
    tracing::debug!(target: "tower_throttle", "a call probes whether {store} replies");
}
