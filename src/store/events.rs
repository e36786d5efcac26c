//! Events of stores, for logs (feature `tracing`) and metrics (feature `metrics`). Labels name the kind of store and
//! its server, never a key.
//!
//! A store that fails and recovers many times per second, or a flood of keys, must not fill a log:
//! after four events at once, one is logged per ten seconds, with the number that was left out.

use std::{
    fmt::Display,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::algorithm::{Algorithm, TokenBucket};
use crate::backend::Stats;
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::StoreError;
use crate::quota::Quota;
use crate::sync::{Mutex, lock, try_lock};
#[cfg(feature = "cas")]
mod remote;

#[cfg(feature = "cas")]
pub(super) use self::remote::RemoteMetrics;
use crate::telemetry::{as_text, log, measure};

/// Counts a switch of a fallback or of a breaker.
pub(super) fn count_switch(of: &'static str, to: &'static str) {
    measure!(counter "tower_throttle_switches_total", ["of" = of, "to" = to], increment(1));
}

/// Four events at once, and then one per ten seconds.
const EVENTS: TokenBucket = TokenBucket::new(Quota::per_minute(6).burst(4));

/// Limits how often an event is logged.
#[derive(Debug, Default)]
pub(super) struct EventLimit(Mutex<Option<<TokenBucket as Algorithm>::State>>);

impl EventLimit {
    fn admits(&self, now: Tick, cost: u64) -> bool {
        // If another thread is about to log, this event is left out.
        let Some(mut state) = try_lock(&self.0) else {
            return false;
        };
        let state = state.get_or_insert_with(|| EVENTS.fresh(now));
        EVENTS.decide(state, now, cost).is_admitted()
    }

    /// Logs a permanent error, at most one in 40 seconds: a store refuses each of a thousand calls per second alike.
    #[cold]
    #[cfg(feature = "cas")]
    pub(super) fn log_refusal(&self, store: &str, error: &StoreError) {
        if self.admits(MonotonicClock.now(), 4) {
            log!(
                error,
                [cause = as_text(error)],
                "{store} refuses calls: an operator has to correct this"
            );
        }
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
    /// Logs a switch to a better or a worse state, with the last error, or counts it as left out. Logs the last one, which
    /// is not new, as soon as the limit allows it, if it was left out: otherwise the log would end with a state that is
    /// over.
    #[inline]
    pub(in crate::store) fn record(
        &self,
        text: &dyn Display,
        is_to_worse: bool,
        cause: Option<&StoreError>,
        is_new: bool,
    ) {
        let left_out = self.left_out.load(Ordering::Relaxed);
        if is_new {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        if is_new || left_out > 0 {
            self.log(text, is_to_worse, cause);
        }
    }

    #[cold]
    fn log(&self, text: &dyn Display, is_to_worse: bool, cause: Option<&StoreError>) {
        if !self.limit.admits(MonotonicClock.now(), 1) {
            return;
        }
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        let Some(left_out) = left_out.checked_sub(1) else {
            return;
        };
        let cause = cause.map(as_text);
        if is_to_worse {
            log!(warn, [cause = cause, left_out = left_out], "{text}");
        } else {
            log!(info, [left_out = left_out], "{text}");
        }
    }
}

/// Logs that a table is full.
#[derive(Debug, Default)]
pub(in crate::store) struct OverflowLog {
    limit: EventLimit,
    /// What was lost until the last event.
    logged: Mutex<Stats>,
}

impl OverflowLog {
    /// Logs what the table has lost since the last event. Logs nothing if the last event was a
    /// short time ago.
    #[cold]
    pub(in crate::store) fn record(&self, now: Tick, losses: impl FnOnce() -> Stats) {
        if !cfg!(feature = "tracing") || !self.limit.admits(now, 1) {
            return;
        }
        let losses = losses();
        let mut logged = lock(&self.logged);
        let before = std::mem::replace(&mut *logged, losses);
        drop(logged);
        let since = |of: fn(&Stats) -> u64| of(&losses).saturating_sub(of(&before));
        log!(
            warn,
            [
                evicted = since(|losses| losses.evicted),
                evicted_denied = since(|losses| losses.evicted_denied),
                denied = since(|losses| losses.denied),
                lost_charges = since(|losses| losses.lost_charges)
            ],
            "a table of keys is full: a larger capacity avoids this"
        );
    }
}
