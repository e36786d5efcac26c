//! A connection: made by the first call, replaced when it breaks, and never retried implicitly.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redis::{Cmd, RedisError, Value};
use tokio::{runtime::Handle, sync::Notify};

use super::{
    connector::{Connector, RawConnection},
    reply::ErrorClass,
    slots::{SlotOwners, slot_of},
};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::StoreError;
use crate::store::{
    events::RemoteMetrics,
    remote::{BreakerConfig, Breakers, Server, catch_panic, connect_pause, rare, within},
};
use crate::sync::{Mutex, lock};

/// The kind of store, as errors and logs name it.
pub(super) const STORE: &str = "Redis";
/// The pause between two attempts to connect.
const RECONNECT_DELAY: Duration = Duration::from_millis(50);
/// The topology of a cluster is checked at most once per interval.
const TOPOLOGY_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// An older connection to a cluster is replaced when a server is silent, even if all slots are where
/// they were: the server may be alive and its connection dead.
#[cfg(feature = "redis-cluster")]
const MAX_CLUSTER_AGE: Duration = Duration::from_secs(5);
/// After so many calls in a row without a reply, the connection counts as dead.
const MAX_UNANSWERED: u32 = 3;

/// One of the connections of a [`Redis`](super::Redis).
pub(super) struct Connection {
    connector: Arc<Connector>,
    state: Mutex<ConnectionState>,
    /// Notified when an attempt to connect ends.
    changed: Notify,
    breakers: Breakers,
    /// Whether calls on different keys may share a script call.
    batches: AtomicBool,
}

#[derive(Default)]
struct ConnectionState {
    raw: Option<RawConnection>,
    /// Counts connections: a late error of an old one does not invalidate a new one.
    generation: u64,
    /// When the running attempt to connect began. The task resets it however it ends.
    connecting_since: Option<Tick>,
    /// Counts attempts: a task that was given up does not end the attempt of another.
    attempt: u64,
    /// When and why the last attempt failed.
    last_error: Option<(Tick, StoreError)>,
    /// Calls in a row without a reply.
    unanswered: u32,
    topology_checked_at: Option<Tick>,
    connected_at: Option<Tick>,
    /// The topology when the connection was made.
    slot_owners: SlotOwners,
}

/// The error of a call and its class.
#[derive(Debug)]
pub(super) struct CallError {
    pub(super) class: ErrorClass,
    pub(super) error: StoreError,
}

impl Connection {
    pub(super) fn new(
        connector: Arc<Connector>,
        config: BreakerConfig,
        batches: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            // The keys of a cluster are in different slots.
            batches: AtomicBool::new(batches && !connector.is_cluster()),
            connector,
            state: Mutex::default(),
            changed: Notify::new(),
            breakers: Breakers::new(STORE, config),
        })
    }

    pub(super) const fn connector(&self) -> &Arc<Connector> {
        &self.connector
    }

    /// Whether calls on different keys may share a script call.
    pub(super) fn batches(&self) -> bool {
        self.batches.load(Ordering::Relaxed)
    }

    /// Sends every further call by itself.
    pub(super) fn stop_batching(&self) {
        self.batches.store(false, Ordering::Relaxed);
    }

    /// Whether its client is that of a cluster.
    pub(super) fn is_cluster(&self) -> bool {
        self.connector.is_cluster()
    }

    pub(super) const fn breakers(&self) -> &Breakers {
        &self.breakers
    }

    /// The server of a key.
    pub(super) fn server_of(&self, key: &str) -> Server {
        if !self.is_cluster() {
            return Server::Single;
        }
        let slot = slot_of(key);
        let state = lock(&self.state);
        let owner = state
            .slot_owners
            .iter()
            .find(|(first, last, _)| (*first..=*last).contains(&slot));
        owner.map_or(Server::Unknown, |(_, _, id)| Server::Master(Arc::clone(id)))
    }

    /// The error of a call that got no reply within its deadline. It names the last error of
    /// connecting, if there is no connection.
    pub(super) fn deadline_exceeded(&self, deadline: Duration) -> StoreError {
        let cause = lock(&self.state).last_error.clone();
        match cause {
            None => StoreError::new(format!("Redis: no answer within {deadline:?}"), true),
            Some((_, cause)) => StoreError::new(
                format!("Redis: no answer within {deadline:?}; the last error: {cause}"),
                cause.is_transient(),
            ),
        }
    }

    /// Sends a command once. Connects first if necessary.
    pub(super) async fn send(self: &Arc<Self>, command: &Cmd) -> Result<Value, CallError> {
        let (generation, mut raw) = self.raw().await?;
        let mut guard = ReplyGuard {
            connection: self,
            generation,
            replied: false,
        };
        let reply = raw.send(command).await;
        guard.replied = true;
        drop(guard);
        reply.map_err(|error| self.call_error(&error, generation))
    }

    /// The error of a call on the connection of this generation, which is given up if it broke.
    #[cold]
    fn call_error(self: &Arc<Self>, error: &RedisError, generation: u64) -> CallError {
        let class = ErrorClass::from_error(error);
        if class.invalidates_connection() {
            self.invalidate(generation);
        }
        CallError {
            class,
            error: class.to_store_error(error, self.is_cluster()),
        }
    }

    async fn raw(self: &Arc<Self>) -> Result<(u64, RawConnection), CallError> {
        {
            let state = lock(&self.state);
            if let Some(raw) = &state.raw {
                return Ok((state.generation, raw.clone()));
            }
        }
        rare(self.raw_or_connect()).await
    }

    async fn raw_or_connect(self: &Arc<Self>) -> Result<(u64, RawConnection), CallError> {
        loop {
            // Before the state is read, so that no change is missed.
            let changed = self.changed.notified();
            {
                let mut state = lock(&self.state);
                if let Some(raw) = &state.raw {
                    return Ok((state.generation, raw.clone()));
                }
                let now = MonotonicClock.now();
                if !state.is_connecting(now, &self.connector) {
                    if let Some((at, error)) = &state.last_error {
                        if now.since(*at) < connect_pause(error, RECONNECT_DELAY) {
                            return Err(CallError {
                                class: if error.is_transient() {
                                    ErrorClass::Unavailable
                                } else {
                                    ErrorClass::Permanent
                                },
                                error: error.clone(),
                            });
                        }
                    }
                    let task = ConnectTask::begin(self, &mut state, now);
                    // A runtime that shuts down drops the task at once, which locks the state.
                    drop(state);
                    tokio::spawn(task.run());
                }
            }
            changed.await;
        }
    }

    /// Gives up a connection. That of a cluster serves the other servers until there is a new one.
    fn invalidate(self: &Arc<Self>, generation: u64) {
        let mut state = lock(&self.state);
        if state.generation != generation {
            return;
        }
        if !self.is_cluster() {
            state.raw = None;
            return;
        }
        let now = MonotonicClock.now();
        let is_due = state
            .topology_checked_at
            .is_none_or(|at| now.since(at) >= TOPOLOGY_CHECK_INTERVAL);
        if is_due && !state.is_connecting(now, &self.connector) {
            if let Ok(runtime) = Handle::try_current() {
                state.topology_checked_at = Some(now);
                let task = ConnectTask::begin(self, &mut state, now);
                drop(state);
                runtime.spawn(task.run());
            }
        }
    }
}

impl ConnectionState {
    /// Whether an attempt to connect is running. One that is long over its timeout is on a runtime
    /// that does not run any more.
    fn is_connecting(&self, now: Tick, connector: &Connector) -> bool {
        self.connecting_since
            .is_some_and(|since| now.since(since) < 2 * connector.connect_timeout())
    }
}

/// Dropped without a reply, it counts the call as unanswered.
struct ReplyGuard<'a> {
    connection: &'a Arc<Connection>,
    generation: u64,
    replied: bool,
}

impl Drop for ReplyGuard<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.connection.state);
        if state.generation != self.generation {
            return;
        }
        if self.replied {
            state.unanswered = 0;
            return;
        }
        state.unanswered += 1;
        // In a cluster, replies of other servers reset the count.
        if state.unanswered >= MAX_UNANSWERED || self.connection.is_cluster() {
            drop(state);
            self.connection.invalidate(self.generation);
        }
    }
}

/// The task that connects. It outlives the calls that wait for it.
struct ConnectTask {
    connection: Arc<Connection>,
    attempt: u64,
}

impl ConnectTask {
    fn begin(connection: &Arc<Connection>, state: &mut ConnectionState, now: Tick) -> Self {
        state.connecting_since = Some(now);
        state.attempt += 1;
        Self {
            connection: Arc::clone(connection),
            attempt: state.attempt,
        }
    }

    async fn run(self) {
        #[cfg(feature = "redis-cluster")]
        if !self.needs_reconnect().await {
            return;
        }
        let connector = &self.connection.connector;
        let limit = connector.connect_timeout();
        let connecting = catch_panic(STORE, async {
            let mut raw = connector.connect().await?;
            let slot_owners = raw.slot_owners().await;
            Ok((raw, slot_owners))
        });
        let ends_at = MonotonicClock.now().plus(limit);
        let connected = within(ends_at, connecting).await;
        let now = MonotonicClock.now();
        RemoteMetrics(STORE).connected(matches!(connected, Some(Ok(Ok(_)))));
        let error = match connected {
            Some(Ok(Ok((raw, slot_owners)))) => {
                if !slot_owners.is_empty() {
                    let breakers = &self.connection.breakers;
                    breakers.retain(|server| owns_slots(&slot_owners, server));
                }
                let mut state = lock(&self.connection.state);
                state.raw = Some(raw);
                state.last_error = None;
                state.connected_at = Some(now);
                state.slot_owners = slot_owners;
                state.generation += 1;
                state.unanswered = 0;
                return;
            }
            Some(Ok(Err(error))) => {
                let class = ErrorClass::from_connect_error(&error);
                class.to_store_error(&error, self.connection.is_cluster())
            }
            Some(Err(panic)) => panic,
            None => StoreError::new(format!("Redis: no connection within {limit:?}"), true),
        };
        lock(&self.connection.state).last_error = Some((now, error));
    }
}

#[cfg(feature = "redis-cluster")]
impl ConnectTask {
    /// Whether a new connection to the cluster would help. A cluster's client serves no calls while
    /// it connects and waits for a silent server.
    async fn needs_reconnect(&self) -> bool {
        let (raw, connected_at, slot_owners) = {
            let state = lock(&self.connection.state);
            (
                state.raw.clone(),
                state.connected_at,
                state.slot_owners.clone(),
            )
        };
        let Some(mut raw) = raw else {
            return true;
        };
        if connected_at.is_none_or(|at| MonotonicClock.now().since(at) >= MAX_CLUSTER_AGE) {
            return true;
        }
        let current = raw.slot_owners().await;
        !current.is_empty() && current != slot_owners
    }
}

/// Whether a server of a cluster has slots.
fn owns_slots(owners: &SlotOwners, server: &Server) -> bool {
    match server {
        Server::Master(id) => owners.iter().any(|(_, _, owner)| owner == id),
        Server::Single | Server::Unknown => true,
    }
}

/// Runs also when the runtime shuts down, so that no call waits for a task that is gone.
impl Drop for ConnectTask {
    fn drop(&mut self) {
        let mut state = lock(&self.connection.state);
        if state.attempt == self.attempt {
            state.connecting_since = None;
        }
        drop(state);
        self.connection.changed.notify_waiters();
    }
}

/// Manual impl: the URL may hold a password.
impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}
