//! The circuit breakers of a connection: one for a server, or sixteen for a cluster.

use std::{
    borrow::Cow,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use super::breaker::{Breaker, BreakerConfig, BreakerCounts};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::StoreError;
use crate::store::events::{
    BreakerChange, BreakerEvent, RefusalLog, RemoteMetrics, SwitchLog, breaker_probed,
};
use crate::sync::{Mutex, lock};

/// The server that a call is sent to, as far as its breaker is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// The only one of a connection.
    Single,
    /// That of a range of 1,024 slots of a cluster, by its number. Whichever servers have these slots.
    Slots(u16),
}

/// How many slots have a breaker in common.
const RANGE: u16 = 1_024;

#[derive(Debug)]
pub(crate) struct Breakers {
    /// The kind of store, as errors and logs name it.
    store: &'static str,
    config: BreakerConfig,
    /// Few: searched in order.
    states: Mutex<Vec<BreakerState>>,
    refusals: RefusalLog,
}

#[derive(Debug)]
struct BreakerState {
    server: Server,
    breaker: Breaker,
    /// The error of the last call, if it failed. Errors of an open breaker name it.
    last_error: Option<StoreError>,
    /// Shared, so that nothing is logged under the lock.
    log: Arc<SwitchLog>,
}

/// What is reported of a breaker.
struct Report {
    event: BreakerEvent,
    /// Whether it has just happened, or was left out of the log before.
    is_new: bool,
    log: Arc<SwitchLog>,
}

impl BreakerState {
    /// The report of a change, or of the present state if the last change was not logged.
    fn report(&self, change: Option<BreakerEvent>) -> Option<Report> {
        let present = || {
            let is_open = self.breaker.counts().is_open;
            let event = if is_open {
                BreakerEvent::Opened
            } else {
                BreakerEvent::Closed
            };
            self.log.has_left_out().then_some(event)
        };
        Some(Report {
            event: change.or_else(present)?,
            is_new: change.is_some(),
            log: Arc::clone(&self.log),
        })
    }
}

impl Server {
    /// That of a slot of a cluster.
    pub(crate) const fn of_slot(slot: u16) -> Self {
        Self::Slots(slot / RANGE)
    }

    /// Its label in metrics.
    fn label(self) -> Cow<'static, str> {
        match self {
            Self::Single => "single".into(),
            Self::Slots(range) => format!("slots {}", range * RANGE).into(),
        }
    }
}

impl Breakers {
    pub(crate) const fn new(store: &'static str, config: BreakerConfig) -> Self {
        Self {
            store,
            config,
            states: Mutex::new(Vec::new()),
            refusals: RefusalLog::new(),
        }
    }

    /// An error if the breaker of `server` is open and no probe is due.
    pub(crate) fn check(&self, server: Server, now: Tick) -> Result<(), StoreError> {
        let checked = self.with_state(server, |state| {
            let probes = state.breaker.counts().probes;
            if !state.breaker.try_start_call(now) {
                return Err(state.last_error.clone());
            }
            Ok(state.breaker.counts().probes != probes)
        });
        match checked {
            Ok(false) => Ok(()),
            Ok(true) => {
                breaker_probed(self.store);
                RemoteMetrics(self.store).breaker_probed();
                Ok(())
            }
            Err(cause) => {
                let cause =
                    cause.map_or_else(String::new, |cause| format!("; the last error: {cause}"));
                let message = format!(
                    "{}: not asked, because the last calls failed{cause}",
                    self.store
                );
                Err(StoreError::not_sent(message))
            }
        }
    }

    /// Records the error of a call that was sent to `server` at `sent_at`. A permanent one shows that the
    /// server is there: it closes the breaker, so that no caller takes a mistake for an outage.
    pub(crate) fn record_error(&self, server: Server, sent_at: Tick, error: &StoreError) {
        if error.is_transient() {
            self.record_failure(server, sent_at, error);
        } else {
            self.refusals.record(self.store, error);
            self.record_success(server);
            self.with_state(server, |state| state.last_error = Some(error.clone()));
        }
    }

    /// Records that `server` replied, with a result or with a permanent error.
    pub(crate) fn record_success(&self, server: Server) {
        let report = self.with_state(server, |state| {
            state.last_error = None;
            let change = state.breaker.record_success();
            state.report(change)
        });
        self.report(server, report, None);
    }

    /// Records the failure of a call that was sent to `server` at `sent_at`.
    fn record_failure(&self, server: Server, sent_at: Tick, error: &StoreError) {
        let report = self.with_state(server, |state| {
            state.last_error = Some(error.clone());
            let change = state.breaker.record_failure(sent_at, MonotonicClock.now());
            state.report(change)
        });
        self.report(server, report, Some(error));
    }

    fn report(&self, server: Server, report: Option<Report>, cause: Option<&StoreError>) {
        let Some(Report { event, is_new, log }) = report else {
            return;
        };
        let change = BreakerChange {
            store: self.store,
            event,
            cause,
        };
        if is_new {
            RemoteMetrics(self.store).breaker_changed(&server.label(), event);
            log.record(&change);
        } else {
            log.catch_up(&change);
        }
    }

    /// The error of the last call to a server, if it failed.
    pub(crate) fn last_error(&self) -> Option<StoreError> {
        let states = lock(&self.states);
        states.iter().find_map(|state| state.last_error.clone())
    }

    /// The counts of all breakers together.
    pub(crate) fn counts(&self) -> BreakerCounts {
        let states = lock(&self.states);
        let counts = states.iter().map(|state| state.breaker.counts());
        counts.fold(BreakerCounts::NONE, BreakerCounts::plus)
    }

    /// Applies `change` to the breaker of `server`.
    fn with_state<T>(&self, server: Server, change: impl FnOnce(&mut BreakerState) -> T) -> T {
        let mut states = lock(&self.states);
        let index = states.iter().position(|state| state.server == server);
        let index = index.unwrap_or_else(|| {
            let seed = RandomState::new().hash_one(states.len());
            states.push(BreakerState {
                server,
                breaker: Breaker::new(self.config, seed),
                last_error: None,
                log: Arc::default(),
            });
            states.len() - 1
        });
        change(&mut states[index])
    }
}

/// No metric counts a breaker that is gone as open.
impl Drop for Breakers {
    fn drop(&mut self) {
        let states = lock(&self.states);
        for state in states.iter().filter(|state| state.breaker.counts().is_open) {
            RemoteMetrics(self.store).breaker_changed(&state.server.label(), BreakerEvent::Closed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_range_of_slots_has_its_own_breaker() {
        let breakers = Breakers::new("Redis", BreakerConfig::default());
        let [stopped, other] = [1_023, 1_024].map(Server::of_slot);
        assert_eq!(stopped, Server::of_slot(0));
        assert_eq!(Server::of_slot(16_383).label(), "slots 15360");
        let error = StoreError::new("no answer", true);
        for _ in 0..3 {
            breakers.record_failure(stopped, MonotonicClock.now(), &error);
        }
        let now = MonotonicClock.now();
        let refused = breakers.check(stopped, now).expect_err("it is open");
        assert!(refused.to_string().contains("the last error: no answer"));
        assert_eq!(breakers.check(other, now), Ok(()));
        assert_eq!(breakers.counts().opened, 1);
        breakers.record_success(stopped);
        assert_eq!(breakers.check(stopped, now), Ok(()));
        assert!(!breakers.counts().is_open);
    }
}
