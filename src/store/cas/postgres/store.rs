//! The store.

use std::{fmt, sync::Arc, time::Duration};

use tokio_postgres::{
    Config, NoTls, Socket,
    tls::{MakeTlsConnect, TlsConnect},
};

use super::{
    connections::Pool,
    error::{Class, Failed},
    sql::Sql,
};
use crate::error::{ConfigError, StoreError, expect_valid};
use crate::store::cas::{CasStore, Loaded, Program, Runs, Settings, Swapped, Value};

const DEFAULT_TABLE: &str = "tower_throttle";

/// PostgreSQL 12 or later as a store of limits.
///
/// It connects on the first call, and is cheap to clone. See the [module](super) for what the table
/// is and what happens to limits when the server restarts.
///
/// ```
/// use tower_throttle::{StoreError, store::cas::postgres::PostgreSql};
///
/// async fn store() -> Result<PostgreSql, StoreError> {
///     let store = PostgreSql::open("postgres://limits:secret@localhost/app").expect("a URL");
///     store.create_table().await?;
///     Ok(store)
/// }
/// ```
///
/// Calls share a few connections, of which the first is made by the first call. More are made, up to
/// [`connections`](Self::connections), if calls are in flight on all that there are. Calls on one connection are
/// pipelined: none waits for the reply to another before it is sent. A connection that breaks is replaced by the next
/// call. Clones share the connections.
#[derive(Clone)]
pub struct PostgreSql {
    pub(super) pool: Pool,
    pub(super) sql: Arc<Sql>,
    logged: bool,
}

impl PostgreSql {
    /// A store on the server at `url`, such as `postgres://user:password@host/database`, without TLS: for that see
    /// [`with_tls`](Self::with_tls).
    ///
    /// # Errors
    /// If `url` is not the URL of a PostgreSQL server, nor a list of parameters.
    ///
    /// ```
    /// use tower_throttle::store::cas::postgres::PostgreSql;
    ///
    /// assert!(PostgreSql::open("postgres://limits@db1,db2/app?target_session_attrs=read-write").is_ok());
    /// let error = PostgreSql::open("redis://db").unwrap_err();
    /// assert!(error.to_string().starts_with("PostgreSQL URL: "));
    /// ```
    pub fn open(url: &str) -> Result<Self, ConfigError> {
        // The text may hold a password, so the error does not repeat it.
        let config = url.parse().map_err(|error| {
            let expected = format!("postgres://USER:PASSWORD@HOST:PORT/DATABASE: {error}");
            ConfigError::syntax("PostgreSQL URL", "..", expected)
        })?;
        Ok(Self::with_tls(config, NoTls))
    }

    /// A store on the server with these settings. With TLS, by any crate that works with tokio-postgres: `tokio-postgres-rustls`,
    /// `postgres-native-tls`, `postgres-openssl`; or `NoTls`.
    ///
    /// The setting `sslmode` decides whether connections use it.
    pub fn with_tls<T>(config: Config, tls: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        Self {
            pool: Pool::new(config, tls),
            sql: Arc::new(expect_valid(Sql::new(DEFAULT_TABLE))),
            logged: false,
        }
    }

    /// At most `count` connections, and one for transactions. The default is 4.
    ///
    /// # Errors
    /// If `count` is not 1 to 64.
    ///
    /// ```
    /// use tower_throttle::store::cas::postgres::PostgreSql;
    ///
    /// let store = PostgreSql::open("postgres://limits@db/app")?.connections(16)?;
    /// assert!(store.connections(0).is_err());
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn connections(mut self, count: usize) -> Result<Self, ConfigError> {
        if !(1..=64).contains(&count) {
            let allowed = "a number from 1 to 64";
            return Err(ConfigError::out_of_range("connections", count, allowed));
        }
        self.pool = self.pool.with(|settings| settings.size = count);
        Ok(self)
    }

    /// Uses no session of its own, as behind a proxy that gives one session to several clients: pgbouncer in transaction
    /// mode.
    ///
    /// Statements are not prepared then, so the server parses and plans each in each call; it is still one round trip.
    /// And a connection does not begin with `SET lock_timeout = '50ms'`, so that a row that an open transaction holds
    /// would delay the calls behind it. Set it for the role instead: `ALTER ROLE .. SET lock_timeout = '50ms'`.
    ///
    /// ```
    /// use tower_throttle::store::cas::postgres::PostgreSql;
    ///
    /// let store = PostgreSql::open("postgres://limits@pgbouncer/app")?.behind_pooler();
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    #[must_use]
    pub fn behind_pooler(mut self) -> Self {
        self.pool = self.pool.with(|settings| settings.has_session = false);
        self
    }

    /// The table's name, which may be preceded by a schema. The default is `tower_throttle`.
    ///
    /// # Errors
    /// If a part of it is not 1 to 54 lowercase letters, digits and `_` that begin with a letter.
    ///
    /// ```
    /// use tower_throttle::store::cas::postgres::PostgreSql;
    ///
    /// let store = PostgreSql::open("postgres://localhost").unwrap();
    /// assert!(store.clone().table("app.limits").is_ok());
    /// assert!(store.table("app limits").is_err());
    /// ```
    pub fn table(mut self, name: &str) -> Result<Self, ConfigError> {
        self.sql = Arc::new(Sql::new(name)?);
        Ok(self)
    }

    /// Makes the table one that survives a crash and is on replicas.
    ///
    /// Each decision then waits until the write is on the disk. To lose the last fraction of a second
    /// in a crash instead, set this for the role: `ALTER ROLE .. SET synchronous_commit = off`.
    ///
    /// It concerns a table that does not exist yet. For one that does:
    /// `ALTER TABLE tower_throttle SET LOGGED`.
    #[must_use]
    pub fn logged(mut self) -> Self {
        self.logged = true;
        self
    }

    /// The statements that make the table, for a migration.
    ///
    /// ```
    /// use tower_throttle::store::cas::postgres::PostgreSql;
    ///
    /// let store = PostgreSql::open("postgres://localhost").unwrap();
    /// assert!(store.migration().contains("CREATE UNLOGGED TABLE IF NOT EXISTS \"tower_throttle\""));
    /// ```
    pub fn migration(&self) -> String {
        self.sql.migration(self.logged)
    }

    /// Makes the table, unless it exists. Several machines may call it at once.
    ///
    /// # Errors
    /// If the server does not reply, if the role may not make or use the table, or if there is
    /// another table of this name.
    pub async fn create_table(&self) -> Result<(), StoreError> {
        // A role that may use the table need not be one that may make it.
        match self.check_table().await {
            Err(failed) if failed.class == Class::MissingTable => {
                let migration = self.sql.locked_migration(self.logged);
                let made = self.run_all(&migration).await;
                made.map_err(Failed::into_error)?;
                self.check().await
            }
            checked => checked.map_err(Failed::into_error),
        }
    }

    /// Finds out whether the table is there, and may be read and written.
    ///
    /// # Errors
    /// Says what is missing.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.check_table().await.map_err(Failed::into_error)
    }

    /// A store with a mistake in the statements of a batch.
    #[cfg(test)]
    pub(in crate::store) fn with_mistake(mut self, right: &str, wrong: &str) -> Self {
        let sql = Arc::get_mut(&mut self.sql).expect("the only store");
        let before = (sql.begin.clone(), sql.lock.clone());
        for text in [&mut sql.begin, &mut sql.lock] {
            *text = text.replace(right, wrong);
        }
        assert_ne!(before, (sql.begin.clone(), sql.lock.clone()));
        self
    }
}

impl CasStore for PostgreSql {
    const NAME: &'static str = "PostgreSQL";
    const RUNS: Runs = Runs::All;

    fn settings(&self) -> Settings {
        Settings {
            has_own_threads: true,
            ..Settings::new(Self::NAME)
        }
    }

    async fn load(&self, key: &str) -> Result<Loaded, StoreError> {
        self.load_value(key).await.map_err(Failed::into_error)
    }

    async fn swap(
        &self,
        key: &str,
        expected: Option<u64>,
        new: &Value,
        ttl: Duration,
    ) -> Result<Swapped, StoreError> {
        self.swap_value(key, expected, new, ttl)
            .await
            .map_err(Failed::into_error)
    }

    async fn run<Q: Program>(&self, program: &Q) -> Result<Q::Reply, StoreError> {
        self.run_program(program).await.map_err(Failed::into_error)
    }
}

/// Manual impl: settings hold a password.
impl fmt::Debug for PostgreSql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgreSql")
            .field("table", &self.sql.name)
            .finish_non_exhaustive()
    }
}
