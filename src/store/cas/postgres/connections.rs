//! A few connections that calls share, made when they are needed and replaced when they break.

use std::{
    collections::HashMap,
    future::Future,
    ops::Deref,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_postgres::{
    Client, Config, Error, Socket, Statement,
    tls::{MakeTlsConnect, TlsConnect},
    types::{ToSql, Type},
};

use super::error::Failed;
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::StoreError;
use crate::store::remote::{Connect, Connector, Pick, task_runtime};
use crate::sync::{Mutex, lock};

const DEFAULT_SIZE: usize = 4;
/// If every connection has so many calls in flight, another one is made.
const CALLS_PER_CONNECTION: usize = 4;
/// A statement that waits for the lock of a row delays all behind it. A caller waits no longer anyway.
const SETTINGS: &str = "SET lock_timeout = '100ms'";
/// A connection with so many calls in a row without a reply, and none for [`SILENCE`], counts as dead.
const MAX_UNANSWERED: usize = 3;
/// Longer than a wait for a lock.
const SILENCE: Duration = Duration::from_secs(1);

/// A few connections that all calls share, and one for transactions. One transaction runs at a time. Threads of this
/// crate serve them, so that a runtime that is busy does not hold locks for longer.
#[derive(Clone)]
pub(super) struct Pool {
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
    dial: Arc<dyn Fn() -> Dialing + Send + Sync>,
    /// Whether a session is of one client alone.
    has_session: bool,
}

type Dialing = Pin<Box<dyn Future<Output = Result<Client, Error>> + Send>>;

impl Pool {
    pub(super) fn new<T>(config: Config, tls: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let dial = move || -> Dialing {
            let (config, tls) = (config.clone(), tls.clone());
            Box::pin(async move {
                let (client, connection) = config.connect(tls).await?;
                // Ends when the client is dropped, or when the connection breaks: then calls fail.
                tokio::spawn(connection);
                Ok(client)
            })
        };
        let settings = Settings {
            dial: Arc::new(dial),
            has_session: true,
        };
        Self::from_settings(settings, DEFAULT_SIZE)
    }

    pub(super) fn with_size(&self, size: usize) -> Self {
        Self::from_settings(self.connector.settings().clone(), size)
    }

    /// The same behind a proxy that gives one session to several clients.
    pub(super) fn without_sessions(&self) -> Self {
        let settings = Settings {
            has_session: false,
            ..self.connector.settings().clone()
        };
        Self::from_settings(settings, self.size)
    }

    pub(super) fn has_sessions(&self) -> bool {
        self.connector.settings().has_session
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
        let mut link = self.exclusive.get(|links| pick(links, 1)).await?;
        link.permit = Some(permit);
        Ok(link)
    }
}

/// The connection with the fewest calls in flight.
fn pick(links: &mut Vec<Arc<Link>>, size: usize) -> Pick<TakenLink, Arc<Link>> {
    let mut unusable = Vec::new();
    if !links.iter().all(|link| link.is_usable()) {
        let all = std::mem::take(links).into_iter();
        (*links, unusable) = all.partition(|link| link.is_usable());
    }
    // Each call has one, beside the one here.
    let in_flight = |link: &Arc<Link>| Arc::strong_count(link) - 1;
    let least = links.iter().min_by_key(|link| in_flight(link));
    let is_busy = least.is_none_or(|link| in_flight(link) >= CALLS_PER_CONNECTION);
    Pick {
        picked: least.map(TakenLink::new),
        wants_another: is_busy && links.len() < size,
        unusable,
    }
}

/// One parameter of a statement.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// A connection to the server. Statements are sent one behind the other, without waiting for the
/// replies.
pub(super) struct Link {
    pub(super) client: Client,
    /// Those that were prepared, by their text.
    statements: Mutex<HashMap<String, Statement>>,
    /// Calls that were dropped since the last reply.
    unanswered: AtomicUsize,
    /// When the last reply came, in nanoseconds.
    replied_at: AtomicU64,
    given_up: AtomicBool,
}

impl Link {
    fn new(client: Client) -> Arc<Self> {
        Arc::new(Self {
            client,
            statements: Mutex::default(),
            unanswered: AtomicUsize::new(0),
            replied_at: AtomicU64::new(MonotonicClock.now().as_nanos()),
            given_up: AtomicBool::new(false),
        })
    }

    /// The statement for this text. Calls that need it at the same time may each prepare it.
    pub(super) async fn prepared(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Statement, Error> {
        let known = lock(&self.statements).get(sql).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let types: Vec<_> = parameters.iter().map(|(_, of)| of.clone()).collect();
        let statement = self.client.prepare_typed(sql, &types).await?;
        lock(&self.statements).insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    fn is_usable(&self) -> bool {
        !self.given_up.load(Ordering::Relaxed) && !self.client.is_closed()
    }

    fn count_silence(&self) {
        let unanswered = self.unanswered.fetch_add(1, Ordering::Relaxed) + 1;
        let replied_at = Tick::from_nanos(self.replied_at.load(Ordering::Relaxed));
        let silence = MonotonicClock.now().since(replied_at);
        if unanswered >= MAX_UNANSWERED && silence >= SILENCE {
            self.given_up.store(true, Ordering::Relaxed);
        }
    }
}

/// A connection that is taken for one statement or one transaction.
pub(super) struct TakenLink {
    link: Arc<Link>,
    replied: bool,
    /// Of a transaction. The next one begins when it is dropped.
    permit: Option<OwnedSemaphorePermit>,
}

impl TakenLink {
    fn new(link: &Arc<Link>) -> Self {
        Self {
            link: Arc::clone(link),
            replied: false,
            permit: None,
        }
    }

    /// Gives it back after the server's reply. No other call gets it if it is of no use any more.
    pub(super) fn release<T>(mut self, result: &Result<T, Failed>) {
        self.replied = true;
        let now = MonotonicClock.now().as_nanos();
        self.link.replied_at.store(now, Ordering::Relaxed);
        self.link.unanswered.store(0, Ordering::Relaxed);
        if result.as_ref().is_err_and(Failed::is_of_connection) {
            self.link.given_up.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for TakenLink {
    fn drop(&mut self) {
        if !self.replied {
            self.link.count_silence();
        }
    }
}

impl Deref for TakenLink {
    type Target = Link;

    fn deref(&self) -> &Link {
        &self.link
    }
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
        task_runtime(Self::STORE, true)
    }

    async fn connect(&self) -> Result<Arc<Link>, StoreError> {
        let connected = async {
            let client = (self.dial)().await?;
            if self.has_session {
                client.batch_execute(SETTINGS).await?;
            }
            Ok(Link::new(client))
        };
        connected
            .await
            .map_err(|error| Failed::of(&error, "").into_error())
    }
}
