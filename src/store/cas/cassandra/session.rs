//! The session: made by the first call, in the background.

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use scylla::client::{session::Session, session_builder::SessionBuilder};
use tokio::{runtime::Handle, sync::Notify, task::AbortHandle};

use super::error::from_new_session;
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::StoreError;
use crate::store::remote::catch_panic;
use crate::sync::{Mutex, lock};

/// How long it may take to connect to a node and to learn of the others.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a failed attempt to connect.
const RECONNECT_DELAY: Duration = Duration::from_millis(200);

/// Where the session comes from.
pub(super) enum Source {
    /// Made when it is needed.
    Builder(Box<SessionBuilder>),
    /// The program's.
    Session(Arc<Session>),
}

/// A session, and whether it works.
pub(super) struct Connected {
    pub(super) session: Arc<Session>,
    /// A task that does nothing, and ends with the runtime on which the session works.
    runtime: Option<AbortHandle>,
}

impl Connected {
    fn new(session: Arc<Session>, runtime: Option<AbortHandle>) -> Arc<Self> {
        Arc::new(Self { session, runtime })
    }

    fn is_usable(&self) -> bool {
        self.runtime.as_ref().is_none_or(|task| !task.is_finished())
    }

    /// The names of the data centers that the nodes are in.
    pub(super) fn datacenters(&self) -> BTreeSet<String> {
        let state = self.session.get_cluster_state();
        let nodes = state.get_nodes_info().iter();
        nodes.filter_map(|node| node.datacenter.clone()).collect()
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        if let Some(task) = &self.runtime {
            task.abort();
        }
    }
}

/// Makes the session, and keeps it. The driver replaces connections that break.
pub(super) struct Connector {
    source: Source,
    state: Mutex<State>,
    /// Notified when an attempt to connect ends.
    changed: Notify,
}

#[derive(Default)]
struct State {
    connected: Option<Arc<Connected>>,
    /// When the running attempt began, and its number.
    connecting: Option<(Tick, u64)>,
    attempts: u64,
    /// When and why the last attempt failed.
    last_error: Option<(Tick, StoreError)>,
}

impl Connector {
    pub(super) fn new(source: Source) -> Arc<Self> {
        let connected = match &source {
            Source::Builder(_) => None,
            Source::Session(session) => Some(Connected::new(Arc::clone(session), None)),
        };
        Arc::new(Self {
            source,
            state: Mutex::new(State {
                connected,
                ..State::default()
            }),
            changed: Notify::new(),
        })
    }

    pub(super) async fn get(self: &Arc<Self>) -> Result<Arc<Connected>, StoreError> {
        loop {
            // Before the state is read, so that no change is missed.
            let changed = self.changed.notified();
            if let Some(connected) = self.existing()? {
                return Ok(connected);
            }
            changed.await;
        }
    }

    /// The session, or `None` if it is being made.
    fn existing(self: &Arc<Self>) -> Result<Option<Arc<Connected>>, StoreError> {
        let outside = |_| StoreError::new("Cassandra: called outside of a tokio runtime", false);
        let runtime = Handle::try_current().map_err(outside);
        let mut state = lock(&self.state);
        if let Some(connected) = &state.connected {
            if connected.is_usable() {
                return Ok(Some(Arc::clone(connected)));
            }
        }
        let old = state.connected.take();
        let now = MonotonicClock.now();
        let mut task = None;
        let is_connecting = state
            .connecting
            .is_some_and(|(since, _)| now.since(since) < 2 * CONNECT_TIMEOUT);
        if !is_connecting {
            if let Some((at, error)) = &state.last_error {
                if now.since(*at) < RECONNECT_DELAY {
                    return Err(error.clone());
                }
            }
            state.attempts += 1;
            state.connecting = Some((now, state.attempts));
            task = Some(ConnectTask {
                connector: Arc::clone(self),
                attempt: state.attempts,
            });
        }
        drop(state);
        drop(old);
        // A runtime that shuts down drops the task at once, which locks the state.
        if let Some(task) = task {
            runtime?.spawn(task.run());
        }
        Ok(None)
    }
}

/// The task that connects. It outlives the calls that wait for it.
struct ConnectTask {
    connector: Arc<Connector>,
    attempt: u64,
}

impl ConnectTask {
    async fn run(self) {
        let connecting = catch_panic("Cassandra", self.connect());
        let connected = match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(connected)) => connected,
            Ok(Err(panic)) => Err(panic),
            Err(_) => {
                let text = format!("Cassandra: no connection within {CONNECT_TIMEOUT:?}");
                Err(StoreError::new(text, true))
            }
        };
        let now = MonotonicClock.now();
        let mut state = lock(&self.connector.state);
        match connected {
            Ok(connected) => {
                state.connected = Some(connected);
                state.last_error = None;
            }
            Err(error) => state.last_error = Some((now, error)),
        }
    }

    async fn connect(&self) -> Result<Arc<Connected>, StoreError> {
        let session = match &self.connector.source {
            // Boxed: it is large.
            Source::Builder(builder) => Box::pin(builder.build()).await,
            Source::Session(session) => return Ok(Connected::new(Arc::clone(session), None)),
        };
        let session = session.map_err(|error| from_new_session(&error))?;
        let runtime = tokio::spawn(std::future::pending::<()>()).abort_handle();
        Ok(Connected::new(Arc::new(session), Some(runtime)))
    }
}

/// Runs also when the runtime shuts down, so that no call waits for a task that has ended.
impl Drop for ConnectTask {
    fn drop(&mut self) {
        let mut state = lock(&self.connector.state);
        let is_last = state
            .connecting
            .is_some_and(|(_, number)| number == self.attempt);
        if is_last {
            state.connecting = None;
        }
        drop(state);
        self.connector.changed.notify_waiters();
    }
}

/// Manual impl: settings hold a password.
impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}
