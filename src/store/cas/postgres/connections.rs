//! A few connections that calls share, made when they are needed and replaced when they break.

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use tokio::{runtime::Handle, sync::Semaphore};
use tokio_postgres::{
    Client, Config, Error, NoTls, Socket,
    tls::{MakeTlsConnect, TlsConnect},
};

use super::{
    error::store_error,
    link::{Link, TakenLink},
};
use crate::error::{ConfigError, StoreError};
use crate::store::remote::{Connect, Connector, Pick, own_runtime, runtime};

const DEFAULT_SIZE: usize = 4;
/// If every connection has so many calls in flight, another one is made.
const CALLS_PER_CONNECTION: usize = 4;
/// A statement that waits for the lock of a row delays all behind it. A caller waits no longer anyway.
const SETTINGS: &str = "SET lock_timeout = '100ms'";

/// A few connections that all calls share, and one for transactions. One transaction runs at
/// a time. Threads of this crate serve them, so that a runtime that is busy does not hold locks for longer.
///
/// The first call makes the first connection. More are made, up to the [size](Self::size), if calls
/// are in flight on all that there are. Calls on one connection are pipelined: none waits for the
/// reply to another before it is sent. A connection that breaks is replaced by the next call.
#[derive(Clone)]
pub struct Connections {
    connector: Arc<Connector<Settings>>,
    /// The connection of transactions.
    exclusive: Arc<Connector<Settings>>,
    /// Of the only transaction.
    transaction: Arc<Semaphore>,
    size: usize,
}

/// How connections are made.
#[derive(Clone)]
struct Settings {
    server: Arc<dyn Server>,
    set_lock_timeout: bool,
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
    ///
    /// ```
    /// use tokio_postgres::Config;
    /// use tower_throttle::store::cas::postgres::{Connections, PostgreSql};
    ///
    /// let mut config = Config::new();
    /// config.host("db").user("limits").password("secret").dbname("app");
    /// let store = PostgreSql::new(Connections::new(config));
    /// ```
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
        let settings = Settings {
            server: Arc::new(TlsServer { config, tls }),
            set_lock_timeout: true,
        };
        Self::from_settings(settings, DEFAULT_SIZE)
    }

    /// At most `count` connections, and the one for transactions. The default is 4.
    ///
    /// # Errors
    /// If `count` is not 1 to 64.
    ///
    /// ```
    /// use tower_throttle::store::cas::postgres::{Connections, PostgreSql};
    ///
    /// let connections = Connections::open("postgres://limits@db/app")?.size(16)?;
    /// let store = PostgreSql::new(connections);
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn size(self, count: usize) -> Result<Self, ConfigError> {
        if !(1..=64).contains(&count) {
            let allowed = "a number from 1 to 64";
            return Err(ConfigError::out_of_range("size", count, allowed));
        }
        let settings = self.connector.settings().clone();
        Ok(Self::from_settings(settings, count))
    }

    /// Leaves the settings of the server's sessions as they are, as a proxy needs that gives one
    /// session to several clients (pgbouncer in transaction mode).
    ///
    /// Otherwise each connection begins with `SET lock_timeout = '100ms'`, so that a row that an
    /// open transaction holds does not delay the calls behind it. Set it for the role instead:
    /// `ALTER ROLE .. SET lock_timeout = '100ms'`.
    ///
    /// ```
    /// use tower_throttle::store::cas::postgres::{Connections, PostgreSql};
    ///
    /// let connections = Connections::open("postgres://limits@pgbouncer/app")?;
    /// let store = PostgreSql::new(connections.without_session_settings());
    /// let store = store.without_prepared_statements();
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    #[must_use]
    pub fn without_session_settings(self) -> Self {
        let settings = Settings {
            set_lock_timeout: false,
            ..self.connector.settings().clone()
        };
        Self::from_settings(settings, self.size)
    }

    fn from_settings(settings: Settings, size: usize) -> Self {
        Self {
            exclusive: Connector::new(settings.clone(), Vec::new()),
            connector: Connector::new(settings, Vec::new()),
            transaction: Arc::new(Semaphore::new(1)),
            size,
        }
    }

    /// Takes a connection for one statement.
    pub(super) async fn get(&self) -> Result<TakenLink, StoreError> {
        self.connector.get(|links| pick(links, self.size)).await
    }

    /// Takes the connection of transactions, which no other call uses until it is dropped.
    pub(super) async fn get_exclusive(&self) -> Result<TakenLink, StoreError> {
        let closed = |error| StoreError::new(format!("PostgreSQL: {error}"), true);
        let turn = Arc::clone(&self.transaction).acquire_owned().await;
        let permit = turn.map_err(closed)?;
        let client = self.exclusive.get(|links| pick(links, 1)).await?;
        Ok(client.exclusive(permit))
    }
}

/// The connection with the fewest calls in flight.
fn pick(links: &mut Vec<Arc<Link>>, size: usize) -> Pick<TakenLink, Arc<Link>> {
    let unusable = remove_unusable(links);
    let least = links.iter().min_by_key(|link| link.in_flight());
    let is_busy = least.is_none_or(|link| link.in_flight() >= CALLS_PER_CONNECTION);
    Pick {
        picked: least.map(TakenLink::new),
        wants_another: is_busy && links.len() < size,
        unusable,
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

impl Connect for Settings {
    type Connection = Arc<Link>;

    const STORE: &'static str = "PostgreSQL";
    const WHAT: &'static str = "connection";
    const PAUSE: Duration = Duration::from_millis(100);

    fn timeout(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn runtime(&self) -> Result<Handle, StoreError> {
        own_runtime().map_or_else(|| runtime(Self::STORE), Ok)
    }

    async fn connect(&self) -> Result<Arc<Link>, StoreError> {
        let connected = async {
            let client = self.server.connect().await?;
            if self.set_lock_timeout {
                client.batch_execute(SETTINGS).await?;
            }
            Ok(Link::new(client))
        };
        connected.await.map_err(|error| store_error(&error, ""))
    }
}

type Connecting<'a> = Pin<Box<dyn Future<Output = Result<Client, Error>> + Send + 'a>>;

/// A server, whatever the type of the TLS.
trait Server: Send + Sync {
    fn connect(&self) -> Connecting<'_>;
}

struct TlsServer<T> {
    config: Config,
    tls: T,
}

impl<T> Server for TlsServer<T>
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
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}
