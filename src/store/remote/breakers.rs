//! The circuit breakers of a connection: one for a server, or one per server of a cluster.

use std::{
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

/// The server that a call is sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// The only one of a connection.
    Single,
    /// A server of a cluster, by its id.
    Master(Arc<str>),
    /// A server of a cluster, not known which. It has no breaker.
    Unknown,
}

#[derive(Debug)]
pub(crate) struct Breakers {
    /// The kind of store, as errors and logs name it.
    store: &'static str,
    config: BreakerConfig,
    states: Mutex<States>,
    refusals: RefusalLog,
}

#[derive(Debug)]
struct States {
    /// Few: searched in order.
    known: Vec<BreakerState>,
    /// The counts of breakers of servers that are gone.
    gone: BreakerCounts,
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
    /// Its label in metrics.
    fn label(&self) -> &str {
        match self {
            Self::Single => "single",
            Self::Master(id) => id,
            Self::Unknown => "unknown",
        }
    }
}

impl Breakers {
    pub(crate) const fn new(store: &'static str, config: BreakerConfig) -> Self {
        Self {
            store,
            config,
            states: Mutex::new(States {
                known: Vec::new(),
                gone: BreakerCounts::NONE,
            }),
            refusals: RefusalLog::new(),
        }
    }

    /// An error if the breaker of `server` is open and no probe is due.
    pub(crate) fn check(&self, server: &Server, now: Tick) -> Result<(), StoreError> {
        let checked = self.with_state(server, |state| {
            let probes = state.breaker.counts().probes;
            if !state.breaker.try_start_call(now) {
                return Err(state.last_error.clone());
            }
            Ok(state.breaker.counts().probes != probes)
        });
        match checked {
            None | Some(Ok(false)) => Ok(()),
            Some(Ok(true)) => {
                breaker_probed(self.store);
                RemoteMetrics(self.store).breaker_probed();
                Ok(())
            }
            Some(Err(cause)) => {
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
    pub(crate) fn record_error(&self, server: &Server, sent_at: Tick, error: &StoreError) {
        if error.is_transient() {
            self.record_failure(server, sent_at, error);
        } else {
            self.refusals.record(self.store, error);
            self.record_success(server);
            self.with_state(server, |state| state.last_error = Some(error.clone()));
        }
    }

    /// Records that `server` replied, with a result or with a permanent error.
    pub(crate) fn record_success(&self, server: &Server) {
        let report = self.with_state(server, |state| {
            state.last_error = None;
            let change = state.breaker.record_success();
            state.report(change)
        });
        self.report(server, report.flatten(), None);
    }

    /// Records the failure of a call that was sent to `server` at `sent_at`.
    fn record_failure(&self, server: &Server, sent_at: Tick, error: &StoreError) {
        let report = self.with_state(server, |state| {
            state.last_error = Some(error.clone());
            let change = state.breaker.record_failure(sent_at, MonotonicClock.now());
            state.report(change)
        });
        self.report(server, report.flatten(), Some(error));
    }

    fn report(&self, server: &Server, report: Option<Report>, cause: Option<&StoreError>) {
        let Some(Report { event, is_new, log }) = report else {
            return;
        };
        let change = BreakerChange {
            store: self.store,
            event,
            cause,
        };
        if is_new {
            RemoteMetrics(self.store).breaker_changed(server.label(), event);
            log.record(&change);
        } else {
            log.catch_up(&change);
        }
    }

    /// The error of the last call to a server, if it failed.
    pub(crate) fn last_error(&self) -> Option<StoreError> {
        let states = lock(&self.states);
        states
            .known
            .iter()
            .find_map(|state| state.last_error.clone())
    }

    /// The counts of all breakers together.
    pub(crate) fn counts(&self) -> BreakerCounts {
        let states = lock(&self.states);
        let counts = states.known.iter().map(|state| state.breaker.counts());
        counts.fold(states.gone, BreakerCounts::plus)
    }

    /// Forgets the breakers of servers that are not `current`. Those that are open close: no call will
    /// show that such a server replies.
    pub(crate) fn retain(&self, current: impl Fn(&Server) -> bool) {
        let gone: Vec<_> = {
            let mut states = lock(&self.states);
            let (known, gone) = std::mem::take(&mut states.known)
                .into_iter()
                .partition(|state| current(&state.server));
            states.known = known;
            gone
        };
        for mut state in gone {
            let change = state.breaker.record_success();
            let report = state.report(change.map(|_| BreakerEvent::Gone));
            self.report(&state.server, report, None);
            let mut states = lock(&self.states);
            states.gone = states.gone.plus(state.breaker.counts());
        }
    }

    /// Applies `change` to the breaker of `server`, if it has one.
    fn with_state<T>(
        &self,
        server: &Server,
        change: impl FnOnce(&mut BreakerState) -> T,
    ) -> Option<T> {
        if *server == Server::Unknown {
            return None;
        }
        let mut states = lock(&self.states);
        let states = &mut states.known;
        let index = states.iter().position(|state| state.server == *server);
        let index = index.unwrap_or_else(|| {
            let seed = RandomState::new().hash_one(states.len());
            states.push(BreakerState {
                server: server.clone(),
                breaker: Breaker::new(self.config, seed),
                last_error: None,
                log: Arc::default(),
            });
            states.len() - 1
        });
        Some(change(&mut states[index]))
    }
}

/// No metric counts a breaker that is gone as open.
impl Drop for Breakers {
    fn drop(&mut self) {
        let states = lock(&self.states);
        for state in states
            .known
            .iter()
            .filter(|state| state.breaker.counts().is_open)
        {
            RemoteMetrics(self.store).breaker_changed(state.server.label(), BreakerEvent::Closed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_breaker_of_a_server_that_is_gone_closes() {
        let breakers = Breakers::new("Redis", BreakerConfig::default());
        let [gone, other] = ["a", "b"].map(|id| Server::Master(id.into()));
        let error = StoreError::new("no answer", true);
        for _ in 0..3 {
            breakers.record_failure(&gone, MonotonicClock.now(), &error);
        }
        breakers.record_success(&other);
        assert!(breakers.counts().is_open);
        breakers.retain(|server| *server == other);
        let counts = breakers.counts();
        assert_eq!((counts.is_open, counts.opened), (false, 1));
        assert_eq!(lock(&breakers.states).known.len(), 1);
    }

    #[test]
    fn each_server_has_its_own_breaker() {
        let breakers = Breakers::new("Redis", BreakerConfig::default());
        let [stopped, other] = ["a", "b"].map(|id| Server::Master(id.into()));
        let error = StoreError::new("no answer", true);
        for server in [&stopped, &Server::Unknown] {
            for _ in 0..3 {
                breakers.record_failure(server, MonotonicClock.now(), &error);
            }
        }
        let now = MonotonicClock.now();
        let refused = breakers.check(&stopped, now).expect_err("it is open");
        assert!(refused.to_string().contains("the last error: no answer"));
        let is_open = |server| {
            let counts = breakers.with_state(server, |state| state.breaker.counts());
            counts.is_some_and(|counts| counts.is_open)
        };
        assert!(is_open(&stopped) && !is_open(&other));
        assert_eq!(breakers.check(&other, now), Ok(()));
        assert_eq!(breakers.check(&Server::Unknown, now), Ok(()));
        assert_eq!(breakers.counts().opened, 1);
        breakers.record_success(&stopped);
        assert_eq!(breakers.check(&stopped, now), Ok(()));
        assert!(!breakers.counts().is_open);
    }
}
