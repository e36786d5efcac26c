//! The port for pools of connections.

use std::{fmt, future::Future};

use tokio_postgres::{
    Client, Error, Statement,
    types::{ToSql, Type},
};

use crate::error::StoreError;
use crate::sync::{Mutex, lock};

/// Where a [`PostgreSql`](super::PostgreSql) gets its connections.
///
/// [`Connections`](super::Connections) is one. To use a pool that the program already has, implement
/// this trait for a wrapper of it:
///
/// ```
/// use std::sync::Arc;
///
/// use tokio_postgres::Client;
/// use tower_throttle::{StoreError, store::cas::postgres::{Pool, PostgreSql}};
///
/// /// One client, which all calls share. With deadpool-postgres, `Connection` is `Object`, with
/// /// bb8-postgres `PooledConnection<'static, _>`, and `get` is the `get` of that pool (`get_owned`).
/// #[derive(Debug)]
/// struct OneClient(Arc<Client>);
///
/// impl Pool for OneClient {
///     type Connection = Arc<Client>;
///
///     async fn get(&self) -> Result<Self::Connection, StoreError> {
///         Ok(Arc::clone(&self.0))
///     }
///
///     fn client(connection: &Self::Connection) -> &Client {
///         connection
///     }
/// }
///
/// fn store(client: Client) -> PostgreSql<OneClient> {
///     PostgreSql::new(OneClient(Arc::new(client)))
/// }
/// ```
///
/// Each statement is a transaction of its own, except on a connection of
/// [`get_exclusive`](Pool::get_exclusive): give no connection on which a transaction has begun.
pub trait Pool: fmt::Debug + Send + Sync + 'static {
    /// A connection, taken for one statement. Dropping it gives it back.
    type Connection: Send + Sync;

    /// Takes a connection, and makes one if there is none.
    ///
    /// # Cancel safety
    /// The caller may drop the future: a limiter stops waiting at its deadline.
    fn get(&self) -> impl Future<Output = Result<Self::Connection, StoreError>> + Send;

    /// Whether no other call uses a connection of [`get_exclusive`](Self::get_exclusive) until it is dropped. If
    /// not, machines that use one key at once wait at random, and fleets exchange one key at a time.
    const IS_EXCLUSIVE: bool = false;

    /// A connection that no other call uses until it is dropped, for a transaction of several statements: by default
    /// that of [`get`](Self::get), which is right for a pool that never shares one.
    ///
    /// # Errors
    /// As `get`.
    fn get_exclusive(&self) -> impl Future<Output = Result<Self::Connection, StoreError>> + Send {
        self.get()
    }

    /// The client of a connection.
    fn client(connection: &Self::Connection) -> &Client;

    /// The prepared statements of a connection, if the pool keeps some with it. Without them the
    /// server parses and plans the statement in each call, still in one round trip.
    fn statements(_connection: &Self::Connection) -> Option<&Statements> {
        None
    }

    /// Gives back a connection after the server's reply. If it is not `usable`, no other call should
    /// get it: the connection broke, or the server is a replica since a failover. A connection whose
    /// call was cancelled is dropped instead.
    fn release(connection: Self::Connection, usable: bool) {
        let _ = usable;
        drop(connection);
    }
}

/// The prepared statements of one connection. A pool keeps it beside the client.
#[derive(Default)]
pub struct Statements(Mutex<Vec<(String, Statement)>>);

/// One parameter of a statement.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// How many statements a connection keeps: those of two tables.
const MAX_STATEMENTS: usize = 12;

impl Statements {
    /// The statement for this text. Calls that need it at the same time may each prepare it.
    pub(super) async fn get(
        &self,
        client: &Client,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Statement, Error> {
        let known = {
            let known = lock(&self.0);
            let found = known.iter().find(|(text, _)| text == sql);
            found.map(|(_, statement)| statement.clone())
        };
        if let Some(statement) = known {
            return Ok(statement);
        }
        let types: Vec<Type> = parameters.iter().map(|(_, of)| of.clone()).collect();
        let statement = client.prepare_typed(sql, &types).await?;
        let replaced = {
            let mut known = lock(&self.0);
            let is_full = known.len() >= MAX_STATEMENTS;
            let replaced = is_full.then(|| known.remove(0));
            if known.iter().all(|(text, _)| text != sql) {
                known.push((sql.to_owned(), statement.clone()));
            }
            replaced
        };
        // Outside the lock: dropping a statement sends a message.
        drop(replaced);
        Ok(statement)
    }

    /// Forgets all: the server no longer has them.
    pub(super) fn clear(&self) {
        let forgotten = std::mem::take(&mut *lock(&self.0));
        drop(forgotten);
    }
}

/// Manual impl: the text of a statement says nothing about the connection.
impl fmt::Debug for Statements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Statements").finish_non_exhaustive()
    }
}
