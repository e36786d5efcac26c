//! The connection: found once, replaced when it is spoilt, never retried behind our back.

use std::{fmt, sync::Arc, time::Duration};

#[cfg(feature = "redis-cluster")]
use redis::ErrorKind;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisError, Value};
use tokio::{runtime::Handle, sync::Notify};

use super::{
    breaker::{Breaker, BreakerCounts},
    reply::ErrorClass,
};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::StoreError;
use crate::store::events::{SwitchEvent, switched};
use crate::sync::{Mutex, lock};

/// A connection that is not there by then is given up, and tried again.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Between two tries to connect, so that a refusing server is not stormed.
const RECONNECT_DELAY: Duration = Duration::from_millis(50);
/// Whether a cluster's connection is to be made anew is looked at no more often than this.
const TOPOLOGY_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// A server of a cluster is asked for so long who has which slots, then another one.
#[cfg(feature = "redis-cluster")]
const TOPOLOGY_TIMEOUT: Duration = Duration::from_millis(100);
#[cfg(feature = "redis-cluster")]
const TOPOLOGY_ATTEMPTS: usize = 4;
/// A cluster's connection so old is made anew when a server is silent, though all slots are where
/// they were: the server may be there, and its connection dead.
#[cfg(feature = "redis-cluster")]
const MAX_CLUSTER_AGE: Duration = Duration::from_secs(5);
/// So many calls in a row without an answer, and the connection is taken for dead.
const MAX_UNANSWERED: u32 = 3;

/// Where connections come from.
pub(super) enum Connector {
    Client(redis::Client),
    Connection(MultiplexedConnection),
    /// Asked for the primary whenever a connection is made. One task connects at a time, so
    /// nobody waits at this lock.
    #[cfg(feature = "redis-sentinel")]
    Sentinel(Box<tokio::sync::Mutex<redis::sentinel::SentinelClient>>),
    #[cfg(feature = "redis-cluster")]
    Cluster(Box<redis::cluster::ClusterClient>),
}

impl Connector {
    /// Whether it makes any number of connections.
    pub(super) const fn supports_pool(&self) -> bool {
        match self {
            Self::Client(_) => true,
            #[cfg(feature = "redis-sentinel")]
            Self::Sentinel(_) => true,
            _ => false,
        }
    }
}

/// A connection that any number of calls share.
#[derive(Clone)]
enum RawConnection {
    Single(MultiplexedConnection),
    #[cfg(feature = "redis-cluster")]
    Cluster(redis::cluster_async::ClusterConnection),
}

/// The one connection of a [`Redis`](super::Redis).
pub(super) struct Connection {
    source: Arc<Connector>,
    slot: Mutex<ConnectionState>,
    /// Something about the slot has changed.
    changed: Notify,
    breaker: Mutex<Breaker>,
}

#[derive(Default)]
struct ConnectionState {
    channel: Option<RawConnection>,
    /// Counts connections, so that a late complaint about an old one spoils no new one.
    generation: u64,
    /// A task is connecting; it says so when it ends, however it ends.
    connecting: bool,
    /// Why and when the last try failed.
    failed: Option<(Tick, StoreError)>,
    /// Calls in a row without an answer.
    silent: u32,
    /// When it was looked at for the last time whether to make a cluster's connection anew.
    looked: Option<Tick>,
    /// When the connection was made.
    made: Option<Tick>,
    /// Who had which slots then.
    owners: SlotOwners,
}

/// Ranges of slots, and the masters that have them.
type SlotOwners = Vec<(i64, i64, String)>;

/// A call that failed, and how.
#[derive(Debug)]
pub(super) struct CallError {
    pub(super) class: ErrorClass,
    pub(super) error: StoreError,
}

impl Connection {
    pub(super) fn new(source: Arc<Connector>) -> Arc<Self> {
        Arc::new(Self {
            source,
            slot: Mutex::default(),
            changed: Notify::new(),
            breaker: Mutex::default(),
        })
    }

    pub(super) const fn source(&self) -> &Arc<Connector> {
        &self.source
    }

    /// Whether calls on different keys may be one call of a script.
    pub(super) fn supports_batching(&self) -> bool {
        match *self.source {
            #[cfg(feature = "redis-cluster")]
            Connector::Cluster(_) => false,
            _ => true,
        }
    }

    /// Whether a call may go to the server, as far as the last ones went well. In a cluster the
    /// last ones may have gone to another server.
    pub(super) fn lets_through(&self, now: Tick) -> bool {
        if !self.supports_batching() {
            return true;
        }
        let mut breaker = lock(&self.breaker);
        let probes = breaker.counts().probes;
        let through = breaker.lets_through(now);
        let probed = breaker.counts().probes != probes;
        drop(breaker);
        if probed {
            switched(SwitchEvent::BreakerProbed);
        }
        through
    }

    /// The last calls went well, or did not for no fault of the server's.
    pub(super) fn succeeded(&self) {
        let switch = lock(&self.breaker).succeeded();
        switch.into_iter().for_each(switched);
    }

    pub(super) fn failed(&self, now: Tick) {
        let switch = lock(&self.breaker).failed(now);
        switch.into_iter().for_each(switched);
    }

    pub(super) fn breaker(&self) -> BreakerCounts {
        lock(&self.breaker).counts()
    }

    /// Sends a command once; connects first if need be.
    pub(super) async fn send(self: &Arc<Self>, command: &Cmd) -> Result<Value, CallError> {
        let (generation, mut channel) = self.channel().await?;
        let mut silence = ReplyGuard {
            link: self,
            generation,
            answered: false,
        };
        let reply = channel.send(command).await;
        silence.answered = true;
        drop(silence);
        reply.map_err(|error| {
            let class = ErrorClass::of(&error);
            if class.invalidates_connection() {
                self.spoilt(generation);
            }
            CallError {
                class,
                error: class.error(&error),
            }
        })
    }

    async fn channel(self: &Arc<Self>) -> Result<(u64, RawConnection), CallError> {
        {
            let slot = lock(&self.slot);
            if let Some(channel) = &slot.channel {
                return Ok((slot.generation, channel.clone()));
            }
        }
        // Seldom, and not to weigh on every call.
        Box::pin(self.connected()).await
    }

    async fn connected(self: &Arc<Self>) -> Result<(u64, RawConnection), CallError> {
        loop {
            // Before the look, so that a change after it is not missed.
            let changed = self.changed.notified();
            {
                let mut slot = lock(&self.slot);
                if let Some(channel) = &slot.channel {
                    return Ok((slot.generation, channel.clone()));
                }
                if !slot.connecting {
                    if let Some((at, error)) = &slot.failed {
                        if MonotonicClock.now().since(*at) < RECONNECT_DELAY {
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
                    slot.connecting = true;
                    // Not under the lock: of a runtime that shuts down the task is dropped at once,
                    // and locks the slot.
                    drop(slot);
                    tokio::spawn(ConnectTask(Arc::clone(self)).run());
                }
            }
            changed.await;
        }
    }

    /// A connection is of no further use; that of a cluster serves the other servers still, until
    /// there is a new one.
    fn spoilt(self: &Arc<Self>, generation: u64) {
        let mut slot = lock(&self.slot);
        if slot.generation != generation {
            return;
        }
        if self.supports_batching() {
            slot.channel = None;
            return;
        }
        let now = MonotonicClock.now();
        let is_due = slot
            .looked
            .is_none_or(|at| now.since(at) >= TOPOLOGY_CHECK_INTERVAL);
        if is_due && !slot.connecting {
            if let Ok(runtime) = Handle::try_current() {
                slot.looked = Some(now);
                slot.connecting = true;
                drop(slot);
                runtime.spawn(ConnectTask(Arc::clone(self)).run());
            }
        }
    }
}

/// A call on its way. Dropped without an answer, it counts against the connection.
struct ReplyGuard<'a> {
    link: &'a Arc<Connection>,
    generation: u64,
    answered: bool,
}

impl Drop for ReplyGuard<'_> {
    fn drop(&mut self) {
        let mut slot = lock(&self.link.slot);
        if slot.generation != self.generation {
            return;
        }
        if self.answered {
            slot.silent = 0;
            return;
        }
        slot.silent += 1;
        // In a cluster the others answer in between.
        if slot.silent >= MAX_UNANSWERED || !self.link.supports_batching() {
            drop(slot);
            self.link.spoilt(self.generation);
        }
    }
}

/// The task that connects. Calls give up at their deadlines; it goes on, for the next ones.
struct ConnectTask(Arc<Connection>);

impl ConnectTask {
    async fn run(self) {
        #[cfg(feature = "redis-cluster")]
        if !self.needs_reconnect().await {
            return;
        }
        let limit = self.0.source.connect_timeout();
        let connected = async {
            let mut channel = self.0.source.connect().await?;
            let owners = channel.owners().await;
            Ok((channel, owners))
        };
        let connected = tokio::time::timeout(limit, connected).await;
        let mut slot = lock(&self.0.slot);
        slot.failed = None;
        let now = MonotonicClock.now();
        match connected {
            Ok(Ok((channel, owners))) => {
                slot.channel = Some(channel);
                slot.made = Some(now);
                slot.owners = owners;
                slot.generation += 1;
                slot.silent = 0;
            }
            Ok(Err(error)) => {
                // Nothing was sent yet, so nothing can be unknown.
                let class = match ErrorClass::of(&error) {
                    ErrorClass::Permanent => ErrorClass::Permanent,
                    _ => ErrorClass::Unavailable,
                };
                slot.failed = Some((now, class.error(&error)));
            }
            Err(_) => {
                let error = StoreError::new(format!("Redis: no connection within {limit:?}"), true);
                slot.failed = Some((now, error));
            }
        }
    }
}

#[cfg(feature = "redis-cluster")]
impl ConnectTask {
    /// Whether a new connection would be any better. While it is made, and a server that is silent
    /// is tried, the client of a cluster serves nobody, so it is not made without need.
    async fn needs_reconnect(&self) -> bool {
        let (channel, made, owners) = {
            let slot = lock(&self.0.slot);
            (slot.channel.clone(), slot.made, slot.owners.clone())
        };
        let Some(mut channel) = channel else {
            return true;
        };
        if made.is_none_or(|at| MonotonicClock.now().since(at) >= MAX_CLUSTER_AGE) {
            return true;
        }
        let now = channel.owners().await;
        !now.is_empty() && now != owners
    }
}

/// Also when its runtime is shut down: else everybody would wait for a task that is gone.
impl Drop for ConnectTask {
    fn drop(&mut self) {
        lock(&self.0.slot).connecting = false;
        self.0.changed.notify_waiters();
    }
}

impl Connector {
    /// How long connecting may take. A cluster has many servers, each of which may let us wait.
    const fn connect_timeout(&self) -> Duration {
        match self {
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(_) => Duration::from_secs(2),
            _ => CONNECT_TIMEOUT,
        }
    }

    /// The client of a cluster as we need it. It sends a call again when a connection breaks, and
    /// then it may be counted twice: so it is to try nothing again, and what was not carried out
    /// because the slot is elsewhere is followed here.
    #[cfg(feature = "redis-cluster")]
    pub(super) fn cluster(
        builder: redis::cluster::ClusterClientBuilder,
    ) -> Result<Self, RedisError> {
        let client = builder
            .retries(0)
            .connection_timeout(CONNECT_TIMEOUT)
            .build()?;
        Ok(Self::Cluster(Box::new(client)))
    }

    async fn connect(&self) -> Result<RawConnection, RedisError> {
        // Every call has its own deadline, and connecting too.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        match self {
            Self::Client(client) => client
                .get_multiplexed_async_connection_with_config(&config)
                .await
                .map(RawConnection::Single),
            Self::Connection(connection) => Ok(RawConnection::Single(connection.clone())),
            #[cfg(feature = "redis-sentinel")]
            Self::Sentinel(client) => client
                .lock()
                .await
                .get_async_connection_with_config(&config)
                .await
                .map(RawConnection::Single),
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(client) => client
                .get_async_connection()
                .await
                .map(RawConnection::Cluster),
        }
    }
}

impl RawConnection {
    async fn send(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        match self {
            Self::Single(connection) => connection
                .send_packed_command(command)
                .await?
                .extract_error(),
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(connection) => send_to_cluster(connection, command).await,
        }
    }

    /// Who has which slots, as any of the servers says; nothing if there are no slots, or none of
    /// those says it in time.
    #[cfg_attr(
        not(feature = "redis-cluster"),
        expect(clippy::unused_async, reason = "only a cluster is asked")
    )]
    async fn owners(&mut self) -> SlotOwners {
        match self {
            Self::Single(_) => SlotOwners::new(),
            #[cfg(feature = "redis-cluster")]
            Self::Cluster(connection) => {
                for _ in 0..TOPOLOGY_ATTEMPTS {
                    let told = tokio::time::timeout(TOPOLOGY_TIMEOUT, owners(connection)).await;
                    if let Ok(Ok(owners)) = told {
                        return owners;
                    }
                }
                SlotOwners::new()
            }
        }
    }
}

#[cfg(feature = "redis-cluster")]
async fn owners(
    connection: &mut redis::cluster_async::ClusterConnection,
) -> Result<SlotOwners, RedisError> {
    use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};

    /// A host, a port and the name of a server, of which the last one stays what it is.
    type Range = (i64, i64, Vec<Value>);
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let routing = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
    let told = connection.route_command(command, routing).await?;
    let Value::Array(ranges) = told.extract_error()? else {
        return Ok(SlotOwners::new());
    };
    let mut owners = SlotOwners::new();
    for range in ranges {
        // The replicas come after the master.
        let Value::Array(mut range) = range else {
            continue;
        };
        range.truncate(3);
        let (first, last, master): Range = redis::from_redis_value(Value::Array(range))?;
        if let Some(name) = master.into_iter().nth(2) {
            owners.push((first, last, redis::from_redis_value(name)?));
        }
    }
    owners.sort_unstable();
    Ok(owners)
}

/// Sends a command to the server that has its slot; once more if that answers that another one has
/// it, for then it was not carried out.
#[cfg(feature = "redis-cluster")]
async fn send_to_cluster(
    connection: &mut redis::cluster_async::ClusterConnection,
    command: &Cmd,
) -> Result<Value, RedisError> {
    use redis::ServerErrorKind::{Ask, Moved};
    use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};

    let reply = redis::aio::ConnectionLike::req_packed_command(connection, command).await;
    let error = match reply.and_then(Value::extract_error) {
        Err(error) => error,
        value => return value,
    };
    let ErrorKind::Server(kind @ (Ask | Moved)) = error.kind() else {
        return Err(error);
    };
    let node = error.redirect_node().and_then(|(node, _)| {
        let (host, port) = node.rsplit_once(':')?;
        Some((host.to_owned(), port.parse().ok()?))
    });
    let Some((host, port)) = node else {
        return Err(error);
    };
    let to = SingleNodeRoutingInfo::ByAddress { host, port };
    if kind == Moved {
        let routing = RoutingInfo::SingleNode(to);
        let reply = connection.route_command(command.clone(), routing).await?;
        return reply.extract_error();
    }
    // Its slot is on its way: the server that is to have it wants to be told that we know.
    let mut pipeline = redis::pipe();
    pipeline.cmd("ASKING").add_command(command.clone());
    let replies = connection.route_pipeline(pipeline, 1, 1, to).await?;
    let reply = replies.into_iter().next().unwrap_or(Value::Nil);
    reply.extract_error()
}

/// Not the URL: it may hold a password.
impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}
