//! Events of which only some are logged.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use super::Switch;
use crate::algorithm::{Algorithm, TokenBucket};
use crate::backend::Losses;
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::quota::Quota;

/// Four events at once, and then one per ten seconds.
const EVENTS: TokenBucket = TokenBucket::new(Quota::per_minute(6).burst(4));

/// Limits how often an event is logged.
#[derive(Debug, Default)]
struct EventLimit(Mutex<Option<<TokenBucket as Algorithm>::State>>);

impl EventLimit {
    fn admits(&self, now: Tick) -> bool {
        // If another thread is about to log, this event is left out.
        let Ok(mut state) = self.0.try_lock() else {
            return false;
        };
        let state = state.get_or_insert_with(|| EVENTS.fresh(now));
        EVENTS.decide(state, now, 1).is_admitted()
    }
}

/// Logs the switches of a fallback or of a circuit breaker.
#[derive(Debug, Default)]
pub(in crate::store) struct SwitchLog {
    limit: EventLimit,
    /// The switches since the last one that was logged.
    left_out: AtomicU64,
}

impl SwitchLog {
    /// Logs a switch, or counts it as left out. Logs the last one, which is not new, as soon as the limit allows it, if it
    /// was left out: otherwise the log would end with a state that is over.
    #[inline]
    pub(in crate::store) fn record(&self, switch: &Switch<'_>, is_new: bool) {
        let left_out = self.left_out.load(Ordering::Relaxed);
        if is_new {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        if is_new || left_out > 0 {
            self.log(switch);
        }
    }

    #[cold]
    fn log(&self, switch: &Switch<'_>) {
        if !self.limit.admits(MonotonicClock.now()) {
            return;
        }
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        let Some(left_out) = left_out.checked_sub(1) else {
            return;
        };
        let ((what, to), cause) = (switch.text, switch.cause.map(tracing::field::display));
        if switch.is_to_worse {
            tracing::warn!(target: "tower_throttle", cause, left_out, "{what} {to}");
        } else {
            tracing::info!(target: "tower_throttle", left_out, "{what} {to}");
        }
    }
}

/// Logs that one call is sent to see whether the server replies again.
#[cfg(feature = "cas")]
pub(in crate::store) fn breaker_probed(store: &'static str) {
    tracing::debug!(target: "tower_throttle", "a call probes whether {store} replies");
}

/// Logs that a table is full.
#[derive(Debug, Default)]
pub(in crate::store) struct OverflowLog {
    limit: EventLimit,
    /// What was lost until the last event.
    logged: Mutex<Losses>,
}

impl OverflowLog {
    /// Logs what the table has lost since the last event. Logs nothing if the last event was a
    /// short time ago.
    #[cold]
    pub(in crate::store) fn record(&self, now: Tick, losses: impl FnOnce() -> Losses) {
        if !self.limit.admits(now) {
            return;
        }
        let losses = losses();
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let since = |now: u64, logged: u64| now.saturating_sub(logged);
        let evicted = since(losses.evicted, logged.evicted);
        let evicted_denied = since(losses.evicted_denied, logged.evicted_denied);
        let denied = since(losses.denied, logged.denied);
        let shared = since(losses.shared, logged.shared);
        let lost_charges = since(losses.lost_charges, logged.lost_charges);
        *logged = losses;
        drop(logged);
        tracing::warn!(
            target: "tower_throttle",
            evicted,
            evicted_denied,
            denied,
            shared,
            lost_charges,
            "a table of keys is full: a larger capacity avoids this"
        );
    }
}
