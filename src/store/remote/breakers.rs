//! The circuit breakers of a store: one, or one per range of slots of a cluster.

use super::{breaker::Breaker, slots::slot_of};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::StoreError;
use crate::store::events::{EventLimit, RemoteMetrics, SwitchLog};
use crate::sync::{Mutex, lock};

/// How many slots have a breaker in common, whichever servers have them.
const RANGE: u16 = 1_024;
const RANGES: u16 = 16;

#[derive(Debug)]
pub(crate) struct Breakers {
    /// The kind of store, as errors and logs name it.
    store: &'static str,
    /// The first one is of all keys, if there are no others.
    ranges: Vec<Range>,
    refusals: EventLimit,
}

/// The breaker of a store, or of a range of slots.
#[derive(Debug, Default)]
struct Range {
    /// In metrics.
    label: String,
    state: Mutex<BreakerState>,
    log: SwitchLog,
}

#[derive(Debug, Default)]
struct BreakerState {
    breaker: Breaker,
    /// The error of the last call, if it failed. Errors of an open breaker name it.
    last_error: Option<StoreError>,
}

impl Breakers {
    /// One breaker, or one more for each range of slots.
    pub(crate) fn new(store: &'static str, of_slots: bool) -> Self {
        let ranges = if of_slots { 0..RANGES } else { 0..0 };
        let ranges = ranges.map(|range| format!("slots {}", range * RANGE));
        let range = |label| Range {
            label,
            ..Range::default()
        };
        let labels = ["single".to_owned()].into_iter().chain(ranges);
        Self {
            store,
            ranges: labels.map(range).collect(),
            refusals: EventLimit::default(),
        }
    }

    /// The range of a key, or the first one of calls on several keys.
    fn range_of(&self, key: &str) -> &Range {
        if key.is_empty() || self.ranges.len() == 1 {
            return &self.ranges[0];
        }
        &self.ranges[usize::from(slot_of(key) / RANGE) + 1]
    }

    /// An error if the breaker of a key is open and no probe is due.
    pub(crate) fn check(&self, key: &str, now: Tick) -> Result<(), StoreError> {
        let mut state = lock(&self.range_of(key).state);
        if state.breaker.try_start_call(now) {
            let is_probe = state.breaker.is_open();
            drop(state);
            if is_probe {
                RemoteMetrics(self.store).breaker_probed();
            }
            return Ok(());
        }
        let cause = state.last_error.as_ref();
        let cause = cause.map_or_else(String::new, |cause| format!("; the last error: {cause}"));
        let store = self.store;
        let message = format!("{store}: not asked, because the last calls failed{cause}");
        Err(StoreError::not_sent(message))
    }

    /// Records the error of a call on a key that was sent at `sent_at`. A permanent one, and one of the key alone, shows
    /// that the server is there: it closes the breaker, so that no caller takes it for an outage.
    pub(crate) fn record_error(&self, key: &str, sent_at: Tick, error: &StoreError) {
        let is_outage = error.is_transient() && !error.is_of_key();
        let failed_at = is_outage.then_some(sent_at);
        if !error.is_transient() {
            self.refusals.log_refusal(self.store, error);
        }
        self.record(self.range_of(key), failed_at, Some(error));
    }

    /// Records that the server of a key replied.
    pub(crate) fn record_success(&self, key: &str) {
        self.record(self.range_of(key), None, None);
    }

    fn record(&self, range: &Range, failed_at: Option<Tick>, error: Option<&StoreError>) {
        let mut state = lock(&range.state);
        state.last_error = error.cloned();
        let has_switched = match failed_at {
            Some(sent_at) => state.breaker.record_failure(sent_at, MonotonicClock.now()),
            None => state.breaker.record_success(),
        };
        let is_open = state.breaker.is_open();
        drop(state);
        if has_switched {
            RemoteMetrics(self.store).breaker_changed(&range.label, is_open);
        }
        let to = if is_open {
            "does not reply: the circuit breaker is open"
        } else {
            "replies again: the circuit breaker is closed"
        };
        let (store, log) = (self.store, &range.log);
        log.record(&format_args!("{store} {to}"), is_open, error, has_switched);
    }
}

/// No metric counts a breaker that is gone as open.
impl Drop for Breakers {
    fn drop(&mut self) {
        for range in &self.ranges {
            if lock(&range.state).breaker.is_open() {
                RemoteMetrics(self.store).breaker_changed(&range.label, false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_range_of_slots_has_its_own_breaker() {
        let breakers = Breakers::new("Redis", true);
        let [stopped, other] = ["{b}", "{a}"];
        assert_eq!(breakers.range_of(stopped).label, "slots 3072");
        assert_ne!(breakers.range_of(other).label, "slots 3072");
        assert_eq!(breakers.ranges[16].label, "slots 15360");
        assert_eq!(breakers.range_of("").label, "single");
        let error = StoreError::new("no answer", true);
        for _ in 0..3 {
            breakers.record_error(stopped, MonotonicClock.now(), &error);
        }
        let now = MonotonicClock.now();
        let refused = breakers.check(stopped, now).expect_err("it is open");
        assert!(refused.to_string().contains("the last error: no answer"));
        assert_eq!(breakers.check(other, now), Ok(()));
        breakers.record_success(stopped);
        assert_eq!(breakers.check(stopped, now), Ok(()));
    }
}
