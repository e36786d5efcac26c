//! A few connections that calls share, made when they are needed and replaced when they break.

use std::{collections::HashMap, future::Future, pin::Pin, sync::Arc, time::Duration};

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
use crate::error::StoreError;
use crate::store::remote::{Connect, Connector, connector::Taken, task_runtime};
use crate::sync::{Mutex, lock};

const DEFAULT_SIZE: usize = 4;
/// While a statement waits for the lock of a row, those sent after it on the connection wait too. It ends before the
/// caller's 100 ms, so that the error says why.
const SETTINGS: &str = "SET lock_timeout = '50ms'";

/// A few connections that all calls share, and one for transactions. One transaction runs at a time. Threads of this
/// crate serve them, so that a runtime that is busy does not hold locks for longer.
#[derive(Clone)]
pub(super) struct Pool {
    connector: Arc<Connector<Settings>>,
    /// The connection of transactions.
    exclusive: Arc<Connector<Settings>>,
    /// Of the only transaction.
    transaction: Arc<Semaphore>,
}

/// How connections are made.
#[derive(Clone)]
pub(super) struct Settings {
    dial: Arc<dyn Fn() -> Dialing + Send + Sync>,
    /// Whether a session is of one client alone, and not behind a proxy that gives one to several.
    pub(super) has_session: bool,
    pub(super) size: usize,
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
        Self::from_settings(Settings {
            dial: Arc::new(dial),
            has_session: true,
            size: DEFAULT_SIZE,
        })
    }

    /// The same with other settings. It shares no connection with its clones then.
    pub(super) fn with(&self, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = self.connector.settings().clone();
        change(&mut settings);
        Self::from_settings(settings)
    }

    pub(super) fn has_sessions(&self) -> bool {
        self.connector.settings().has_session
    }

    fn from_settings(settings: Settings) -> Self {
        let one = Settings {
            size: 1,
            ..settings.clone()
        };
        Self {
            exclusive: Connector::new(one),
            connector: Connector::new(settings),
            transaction: Arc::new(Semaphore::new(1)),
        }
    }

    /// Takes a connection for one statement.
    pub(super) async fn get(&self) -> Result<TakenLink, StoreError> {
        self.connector.get().await
    }

    /// Takes the connection of transactions, which no other call uses until both are dropped.
    pub(super) async fn get_exclusive(
        &self,
    ) -> Result<(OwnedSemaphorePermit, TakenLink), StoreError> {
        let closed = |error| StoreError::new(format!("PostgreSQL: {error}"), true);
        let turn = Arc::clone(&self.transaction).acquire_owned().await;
        Ok((turn.map_err(closed)?, self.exclusive.get().await?))
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
}

pub(super) type TakenLink = Taken<Settings>;

impl Link {
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
}

impl Connect for Settings {
    type Connection = Link;

    const STORE: &'static str = "PostgreSQL";
    const PAUSE: Duration = Duration::from_millis(100);
    /// Longer than a wait for a lock.
    const SILENCE: Duration = Duration::from_secs(1);

    fn timeout(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn runtime(&self) -> Result<Handle, StoreError> {
        task_runtime(Self::STORE, true)
    }

    fn most(&self) -> usize {
        self.size
    }

    fn is_open(&self, link: &Link) -> bool {
        !link.client.is_closed()
    }

    async fn connect(&self) -> Result<Link, StoreError> {
        let connected = async {
            let client = (self.dial)().await?;
            if self.has_session {
                client.batch_execute(SETTINGS).await?;
            }
            let statements = Mutex::default();
            Ok(Link { client, statements })
        };
        connected
            .await
            .map_err(|error| Failed::of(&error, "").into_error())
    }
}
