//! The store.

use std::{sync::Arc, time::Duration};

use super::{
    connections::Connections,
    error::Class,
    sql::Sql,
    statements::Calls,
    sweeper::{BATCH, Sweeper, Sweeps},
};
use crate::error::{ConfigError, StoreError, expect_valid};
use crate::store::cas::{CasStore, Loaded, Program, Runs, Settings, Swapped, Value, Version};

const DEFAULT_TABLE: &str = "tower_throttle";
const DEFAULT_INTERVAL: Duration = Duration::from_secs(30);

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
#[derive(Clone, Debug)]
pub struct PostgreSql {
    calls: Calls,
    logged: bool,
    sweeper: Arc<Sweeper>,
}

impl PostgreSql {
    /// A store on the server at `url`, such as `postgres://user:password@host/database`, through a
    /// few connections without TLS. For TLS see [`Connections::with_tls`].
    ///
    /// # Errors
    /// If `url` is not the URL of a PostgreSQL server.
    pub fn open(url: &str) -> Result<Self, ConfigError> {
        Connections::open(url).map(Self::new)
    }

    /// A store through these connections.
    pub fn new(pool: Connections) -> Self {
        let sql = Sql::new(DEFAULT_TABLE);
        Self {
            calls: Calls {
                pool,
                sql: Arc::new(expect_valid(sql)),
                prepares: true,
            },
            logged: false,
            sweeper: Arc::new(Sweeper::new(Some(DEFAULT_INTERVAL))),
        }
    }

    /// The table's name, which may be preceded by a schema. The default is `tower_throttle`.
    ///
    /// # Errors
    /// If a part of it is not 1 to 54 lowercase letters, digits and `_`, or begins with a digit.
    ///
    /// ```
    /// use tower_throttle::store::cas::postgres::PostgreSql;
    ///
    /// let store = PostgreSql::open("postgres://localhost").unwrap();
    /// assert!(store.clone().table("app.limits").is_ok());
    /// assert!(store.table("app limits").is_err());
    /// ```
    pub fn table(mut self, name: &str) -> Result<Self, ConfigError> {
        self.calls.sql = Arc::new(Sql::new(name)?);
        // Clones of this store may have another table.
        self.sweeper = Arc::new(Sweeper::new(self.sweeper.interval()));
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

    /// Prepares no statements, for proxies that give a client's statements to several sessions:
    /// pgbouncer in transaction mode, unless its `max_prepared_statements` is set.
    ///
    /// The server then parses and plans each statement in each call. It is still one round trip.
    /// Pgbouncer in transaction mode also needs [`Connections::without_session_settings`].
    #[must_use]
    pub fn without_prepared_statements(mut self) -> Self {
        self.calls.prepares = false;
        self
    }

    /// Removes expired rows about this often, in the background, in batches of 100. The default is
    /// 30 seconds. The first call starts the task, and dropping the store ends it.
    ///
    /// # Errors
    /// If `interval` is not 10 milliseconds to a day.
    pub fn sweep_every(mut self, interval: Duration) -> Result<Self, ConfigError> {
        let allowed = Duration::from_millis(10)..=Duration::from_secs(86_400);
        if !allowed.contains(&interval) {
            return Err(ConfigError::out_of_range(
                "interval",
                format_args!("{interval:?}"),
                "a duration from 10ms to one day",
            ));
        }
        self.sweeper = Arc::new(Sweeper::new(Some(interval)));
        Ok(self)
    }

    /// Leaves expired rows to calls of [`sweep`](Self::sweep).
    #[must_use]
    pub fn without_sweeps(mut self) -> Self {
        self.sweeper = Arc::new(Sweeper::new(None));
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
        self.calls.sql.migration(self.logged)
    }

    /// Makes the table, unless it exists. Several machines may call it at once.
    ///
    /// # Errors
    /// If the server does not reply, if the role may not make or use the table, or if there is
    /// another table of this name.
    pub async fn create_table(&self) -> Result<(), StoreError> {
        // A role that may use the table need not be one that may make it.
        match self.calls.check().await {
            Err(error) if error.class == Class::MissingTable => {
                let migration = self.calls.sql.locked_migration(self.logged);
                self.calls.run_all(&migration).await?;
                self.check().await
            }
            checked => checked.map_err(|error| error.error),
        }
    }

    /// Finds out whether the table is there, and may be read and written.
    ///
    /// # Errors
    /// Says what is missing.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.calls.check().await.map_err(|error| error.error)
    }

    /// Removes up to `limit` rows that have expired some time ago, and returns how many. Rows that
    /// another transaction holds are skipped.
    ///
    /// # Errors
    /// If the server does not reply, or if the role may not delete.
    pub async fn sweep(&self, limit: u32) -> Result<u64, StoreError> {
        let mut removed = 0;
        while removed < u64::from(limit) {
            let left = u64::from(limit) - removed;
            let batch = u32::try_from(left).unwrap_or(limit).min(BATCH);
            let swept = self.calls.sweep(batch).await?;
            removed += swept.removed;
            if swept.read < u64::from(batch) {
                break;
            }
        }
        Ok(removed)
    }

    /// A store with a mistake in the statements of a batch.
    #[cfg(test)]
    pub(in crate::store) fn with_mistake(mut self, right: &str, wrong: &str) -> Self {
        let sql = Arc::get_mut(&mut self.calls.sql).expect("the only store");
        let before = (sql.begin.clone(), sql.lock.clone());
        for text in [&mut sql.begin, &mut sql.lock] {
            *text = text.replace(right, wrong);
        }
        assert_ne!(before, (sql.begin.clone(), sql.lock.clone()));
        self
    }

    /// What the sweeps in the background have done.
    pub fn sweeps(&self) -> Sweeps {
        self.sweeper.sweeps()
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
        self.sweeper.start(&self.calls);
        self.calls.load(key).await
    }

    async fn swap(
        &self,
        key: &str,
        expected: Option<Version>,
        new: &Value,
        ttl: Duration,
    ) -> Result<Swapped, StoreError> {
        self.sweeper.start(&self.calls);
        self.calls.swap(key, expected, new, ttl).await
    }

    async fn run<Q: Program>(&self, program: &Q) -> Result<Q::Reply, StoreError> {
        self.sweeper.start(&self.calls);
        self.calls.run(program).await
    }
}

#[cfg(all(test, not(tower_throttle_loom)))]
mod tests {
    use super::*;

    #[test]
    fn another_table_is_swept_as_often() {
        let store = || PostgreSql::open("postgres://localhost").expect("a URL");
        let minute = Duration::from_secs(60);
        let swept = store().sweep_every(minute).expect("an interval");
        let swept = swept.table("other").expect("a name");
        assert_eq!(swept.sweeper.interval(), Some(minute));
        let left = store().without_sweeps().table("other").expect("a name");
        assert_eq!(left.sweeper.interval(), None);
    }
}
