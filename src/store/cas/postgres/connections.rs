//! A few connections that calls share, made when they are needed and replaced when they break.

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use tokio::{runtime::Handle, sync::Notify};
use tokio_postgres::{
    Client, Config, Error, NoTls, Socket,
    tls::{MakeTlsConnect, TlsConnect},
};

use super::{
    error::store_error,
    link::{Link, Shared},
    pool::{Pool, Statements},
};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::{ConfigError, StoreError};
use crate::store::remote::catch_panic;
use crate::sync::{Mutex, lock};

const DEFAULT_SIZE: usize = 4;
/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The pause after a failed attempt to connect.
const RECONNECT_DELAY: Duration = Duration::from_millis(100);
/// If every connection has so many calls in flight, another one is made.
const CALLS_PER_CONNECTION: usize = 4;
/// A statement that waits for the lock of a row delays all behind it. A caller waits no longer anyway.
const SETTINGS: &str = "SET lock_timeout = '100ms'";

/// A few connections that all calls share: the [`Pool`] of this crate.
///
/// The first call makes the first connection. More are made, up to the [size](Self::size), if calls
/// are in flight on all that there are. Calls on one connection are pipelined: none waits for the
/// reply to another before it is sent. A connection that breaks is replaced by the next call.
#[derive(Clone)]
pub struct Connections {
    shared: Arc<Inner>,
}

struct Inner {
    /// Makes a connection.
    connect: Arc<dyn Connect>,
    size: usize,
    set_lock_timeout: bool,
    state: Mutex<State>,
    /// Notified when an attempt to connect ends.
    changed: Notify,
}

#[derive(Default)]
struct State {
    links: Vec<Arc<Link>>,
    /// When the running attempt began, and its number.
    connecting: Option<(Tick, u64)>,
    attempts: u64,
    /// When and why the last attempt failed.
    last_error: Option<(Tick, StoreError)>,
}

impl Connections {
    /// Connections to the server at `url`, such as `postgres://user:password@host/database`.
    ///
    /// They are made without TLS: see [`with_tls`](Self::with_tls).
    ///
    /// # Errors
    /// If `url` is not the URL of a PostgreSQL server, nor a list of parameters.
    ///
    /// ```
    /// use tower_throttle::store::cas::postgres::Connections;
    ///
    /// assert!(Connections::open("postgres://limits@db1,db2/app?target_session_attrs=read-write").is_ok());
    /// let error = Connections::open("redis://db").unwrap_err();
    /// assert!(error.to_string().starts_with("PostgreSQL URL: "));
    /// ```
    pub fn open(url: &str) -> Result<Self, ConfigError> {
        // The text may hold a password, so the error does not repeat it.
        let config = url.parse().map_err(|error| ConfigError::Syntax {
            field: "PostgreSQL URL",
            text: "..".to_owned(),
            expected: format!("postgres://USER:PASSWORD@HOST:PORT/DATABASE: {error}"),
        })?;
        Ok(Self::new(config))
    }

    /// Connections with these settings, without TLS.
    pub fn new(config: Config) -> Self {
        Self::with_tls(config, NoTls)
    }

    /// Connections with TLS, by any crate that works with tokio-postgres: `tokio-postgres-rustls`,
    /// `postgres-native-tls`, `postgres-openssl`.
    ///
    /// The setting `sslmode` decides whether they use it.
    pub fn with_tls<T>(config: Config, tls: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        Self::from_settings(Arc::new(Connector { config, tls }), DEFAULT_SIZE, true)
    }

    /// At most `count` connections. The default is 4.
    ///
    /// # Errors
    /// If `count` is not 1 to 64.
    pub fn size(self, count: usize) -> Result<Self, ConfigError> {
        if !(1..=64).contains(&count) {
            let allowed = "a number from 1 to 64";
            return Err(ConfigError::out_of_range("size", count, allowed));
        }
        let connect = Arc::clone(&self.shared.connect);
        let set_lock_timeout = self.shared.set_lock_timeout;
        Ok(Self::from_settings(connect, count, set_lock_timeout))
    }

    /// Leaves the settings of the server's sessions as they are, as a proxy needs that gives one
    /// session to several clients (pgbouncer in transaction mode).
    ///
    /// Otherwise each connection begins with `SET lock_timeout = '100ms'`, so that a row that an
    /// open transaction holds does not delay the calls behind it. Set it for the role instead:
    /// `ALTER ROLE .. SET lock_timeout = '100ms'`.
    #[must_use]
    pub fn without_session_settings(self) -> Self {
        Self::from_settings(Arc::clone(&self.shared.connect), self.shared.size, false)
    }

    fn from_settings(connect: Arc<dyn Connect>, size: usize, set_lock_timeout: bool) -> Self {
        Self {
            shared: Arc::new(Inner {
                connect,
                size,
                set_lock_timeout,
                state: Mutex::default(),
                changed: Notify::new(),
            }),
        }
    }
}

impl Pool for Connections {
    type Connection = Shared;

    async fn get(&self) -> Result<Shared, StoreError> {
        loop {
            // Before the state is read, so that no change is missed.
            let changed = self.shared.changed.notified();
            if let Some(shared) = self.pick()? {
                return Ok(shared);
            }
            changed.await;
        }
    }

    fn client(connection: &Shared) -> &Client {
        &connection.link().client
    }

    fn statements(connection: &Shared) -> Option<&Statements> {
        Some(&connection.link().statements)
    }

    fn release(connection: Shared, usable: bool) {
        connection.release(usable);
    }
}

impl Connections {
    /// The connection with the fewest calls in flight, or `None` if the first one is being made.
    fn pick(&self) -> Result<Option<Shared>, StoreError> {
        let now = MonotonicClock.now();
        let outside = |_| StoreError::new("PostgreSQL: called outside of a tokio runtime", false);
        let runtime = Handle::try_current().map_err(outside);
        let mut state = lock(&self.shared.state);
        let unusable = remove_unusable(&mut state.links);
        let least = state.links.iter().min_by_key(|link| link.in_flight());
        let picked = least.map(|link| Shared::new(Arc::clone(link)));
        let is_busy = picked
            .as_ref()
            .is_none_or(|shared| shared.link().in_flight() > CALLS_PER_CONNECTION);
        let failed = state
            .last_error
            .as_ref()
            .filter(|(at, _)| now.since(*at) < RECONNECT_DELAY);
        let failed = failed.map(|(_, error)| error.clone());
        let is_connecting = state
            .connecting
            .is_some_and(|(since, _)| now.since(since) < 2 * CONNECT_TIMEOUT);
        let mut task = None;
        if is_busy && state.links.len() < self.shared.size && !is_connecting {
            match failed {
                Some(error) if picked.is_none() => return Err(error),
                Some(_) => {}
                None => task = Some(ConnectTask::begin(&self.shared, &mut state, now)),
            }
        }
        drop(state);
        // A runtime that shuts down drops the task at once, which locks the state.
        if let Some(task) = task {
            runtime?.spawn(task.run());
        }
        drop(unusable);
        Ok(picked)
    }
}

/// Removes the connections that broke. Does not allocate if there are none.
fn remove_unusable(links: &mut Vec<Arc<Link>>) -> Vec<Arc<Link>> {
    let mut unusable = Vec::new();
    let mut at = 0;
    while at < links.len() {
        if links[at].is_usable() {
            at += 1;
        } else {
            unusable.push(links.swap_remove(at));
        }
    }
    unusable
}

/// The task that connects. It outlives the calls that wait for it.
struct ConnectTask {
    shared: Arc<Inner>,
    attempt: u64,
}

impl ConnectTask {
    fn begin(shared: &Arc<Inner>, state: &mut State, now: Tick) -> Self {
        state.attempts += 1;
        state.connecting = Some((now, state.attempts));
        Self {
            shared: Arc::clone(shared),
            attempt: state.attempts,
        }
    }

    async fn run(self) {
        let connecting = catch_panic("PostgreSQL", self.connect());
        let connected = match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(connected)) => connected,
            Ok(Err(panic)) => Err(panic),
            Err(_) => {
                let text = format!("PostgreSQL: no connection within {CONNECT_TIMEOUT:?}");
                Err(StoreError::new(text, true))
            }
        };
        let now = MonotonicClock.now();
        let mut state = lock(&self.shared.state);
        match connected {
            Ok(client) => {
                state.links.push(Link::new(client));
                state.last_error = None;
            }
            Err(error) => state.last_error = Some((now, error)),
        }
    }

    async fn connect(&self) -> Result<Client, StoreError> {
        let connected = async {
            let client = self.shared.connect.connect().await?;
            if self.shared.set_lock_timeout {
                client.batch_execute(SETTINGS).await?;
            }
            Ok(client)
        };
        connected.await.map_err(|error| store_error(&error, ""))
    }
}

/// Runs also when the runtime shuts down, so that no call waits for a task that has ended.
impl Drop for ConnectTask {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        let is_last = state
            .connecting
            .is_some_and(|(_, number)| number == self.attempt);
        if is_last {
            state.connecting = None;
        }
        drop(state);
        self.shared.changed.notify_waiters();
    }
}

type Connecting<'a> = Pin<Box<dyn Future<Output = Result<Client, Error>> + Send + 'a>>;

/// How connections are made, whatever the type of the TLS.
trait Connect: Send + Sync {
    fn connect(&self) -> Connecting<'_>;
}

struct Connector<T> {
    config: Config,
    tls: T,
}

impl<T> Connect for Connector<T>
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::Stream: Send,
    T::TlsConnect: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            let (client, connection) = self.config.connect(self.tls.clone()).await?;
            // Ends when the client is dropped, or when the connection breaks: then calls fail.
            tokio::spawn(connection);
            Ok(client)
        })
    }
}

/// Manual impl: settings hold a password.
impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections")
            .field("size", &self.shared.size)
            .finish_non_exhaustive()
    }
}
