//! The store.

use std::{sync::Arc, time::Duration};

use scylla::{
    client::{session::Session, session_builder::SessionBuilder},
    errors::ExecutionError,
};

use super::{
    cql::{Cql, ttl_seconds},
    error::{from_execution, is_agreed},
    rows,
    session::{Agreement, CqlTable, Source},
};
use crate::clock::unix_time;
use crate::error::{ConfigError, StoreError, expect_valid};
use crate::store::{
    cas::{CasStore, Loaded, Swapped, Value},
    remote::Connector,
};

const DEFAULT_TABLE: &str = "tower_throttle.limits";

/// Cassandra 4 or later, or ScyllaDB, as a store of limits.
///
/// It connects on the first call, and is cheap to clone. See the [module](super) for what several
/// data centers mean for a limit.
///
/// ```
/// use tower_throttle::{StoreError, store::cas::cassandra::Cassandra};
///
/// async fn store() -> Result<Cassandra, StoreError> {
///     let store = Cassandra::open("10.0.0.1:9042, 10.0.0.2").table("app.limits").expect("a name");
///     store.create_table().await?;
///     Ok(store)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Cassandra {
    prepared: Arc<Connector<CqlTable>>,
}

impl Cassandra {
    /// A store in the cluster of these nodes, which are addresses or host names separated by commas.
    /// The default port is 9042.
    ///
    /// Without a password and TLS: see [`with_builder`](Self::with_builder).
    pub fn open(nodes: &str) -> Self {
        let nodes = nodes.split(',').map(str::trim);
        let nodes = nodes.filter(|node| !node.is_empty());
        Self::with_builder(SessionBuilder::new().known_nodes(nodes))
    }

    /// A store whose session has these settings. The session is made by the first call.
    ///
    /// ```
    /// use scylla::client::session_builder::SessionBuilder;
    /// use tower_throttle::store::cas::cassandra::Cassandra;
    ///
    /// let builder = SessionBuilder::new().known_node("10.0.0.1").user("limits", "secret");
    /// let store = Cassandra::with_builder(builder);
    /// ```
    pub fn with_builder(builder: SessionBuilder) -> Self {
        Self::from_source(Source::Builder(Arc::new(builder)))
    }

    /// A store that uses a session of the program.
    ///
    /// The statements of the store have their own consistency, and ask the same replica of a key
    /// first, whatever the profile of the session says.
    pub fn with_session(session: Arc<Session>) -> Self {
        Self::from_source(Source::Session(session))
    }

    fn from_source(source: Source) -> Self {
        let table = CqlTable {
            source,
            cql: expect_valid(Cql::new(DEFAULT_TABLE)),
            agreement: Agreement::default(),
        };
        Self {
            prepared: Connector::new(table),
        }
    }

    /// The same with other settings. It shares no session with its clones then, unless it is the program's.
    fn with(&self, change: impl FnOnce(&mut CqlTable)) -> Self {
        let mut table = self.prepared.settings().clone();
        change(&mut table);
        Self {
            prepared: Connector::new(table),
        }
    }

    /// The keyspace and the table. The default is `tower_throttle.limits`.
    ///
    /// # Errors
    /// If they are not two names with a dot between them, each of 1 to 48 lowercase letters, digits
    /// and `_` that begin with a letter.
    ///
    /// ```
    /// use tower_throttle::store::cas::cassandra::Cassandra;
    ///
    /// let store = Cassandra::open("10.0.0.1");
    /// assert!(store.clone().table("app.limits").is_ok());
    /// assert!(store.table("limits").is_err());
    /// ```
    pub fn table(self, name: &str) -> Result<Self, ConfigError> {
        let cql = Cql::new(name)?;
        Ok(self.with(|table| table.cql = cql))
    }

    /// The data center of this machine: only its nodes are asked. It is needed in a cluster of
    /// several, because each has a limit of its own.
    ///
    /// ```
    /// use tower_throttle::store::cas::cassandra::Cassandra;
    ///
    /// let store = Cassandra::open("10.0.0.1").datacenter("eu-west");
    /// ```
    #[must_use]
    pub fn datacenter(self, name: &str) -> Self {
        self.with(|table| table.agreement.datacenter = Some(name.to_owned()))
    }

    /// Makes it one limit for all data centers (`SERIAL` and `QUORUM`).
    ///
    /// All machines have to agree on this: the two kinds of lightweight transactions do not see each
    /// other.
    ///
    /// ```
    /// use tower_throttle::store::cas::cassandra::Cassandra;
    ///
    /// let store = Cassandra::open("10.0.0.1").datacenter("eu-west").across_datacenters();
    /// ```
    #[must_use]
    pub fn across_datacenters(self) -> Self {
        self.with(|table| table.agreement.across = true)
    }

    /// The statement that makes the table, for a migration. The keyspace has to exist.
    ///
    /// ```
    /// use tower_throttle::store::cas::cassandra::Cassandra;
    ///
    /// let store = Cassandra::open("10.0.0.1");
    /// assert!(store.migration().contains("CREATE TABLE IF NOT EXISTS \"tower_throttle\".\"limits\""));
    /// ```
    pub fn migration(&self) -> String {
        self.prepared.settings().cql.migration.clone()
    }

    /// Makes the table, unless it exists. The keyspace has to exist: only you know its replication.
    ///
    /// # Errors
    /// If no node replies, if the role may not make or use the table, or if there is another table
    /// of this name.
    pub async fn create_table(&self) -> Result<(), StoreError> {
        // A role that may use the table need not be one that may make it.
        match self.check().await {
            Err(error) if !error.is_transient() => {}
            checked => return checked,
        }
        let session = self.prepared.settings().source.session().await?;
        let made = session.query_unpaged(self.migration(), ()).await;
        made.map_err(|error| self.error(&error))?;
        self.prepared.forget_failure();
        self.check().await
    }

    /// Finds out whether the table is there, and may be read.
    ///
    /// # Errors
    /// Says what is missing.
    ///
    /// ```
    /// use tower_throttle::{StoreError, store::cas::cassandra::Cassandra};
    ///
    /// async fn start() -> Result<(), StoreError> {
    ///     Cassandra::open("10.0.0.1").check().await
    /// }
    /// ```
    pub async fn check(&self) -> Result<(), StoreError> {
        self.load("check").await.map(drop)
    }

    fn error(&self, error: &ExecutionError) -> StoreError {
        from_execution(error, &self.prepared.settings().cql.table)
    }
}

impl CasStore for Cassandra {
    const NAME: &'static str = "Cassandra";

    async fn load(&self, key: &str) -> Result<Loaded, StoreError> {
        let statements = self.prepared.get().await?;
        let session = &statements.session;
        let result = session.execute_unpaged(&statements.load, (key,)).await;
        rows::loaded(result.map_err(|error| self.error(&error))?)
    }

    async fn swap(
        &self,
        key: &str,
        expected: Option<u64>,
        new: &Value,
        ttl: Duration,
    ) -> Result<Swapped, StoreError> {
        let statements = self.prepared.get().await?;
        let session = &statements.session;
        let (ttl, version) = (ttl_seconds(ttl, unix_time().as_secs()), bits(new.version));
        let written = (ttl, version, &new.bytes, key);
        let result = match expected {
            None => session.execute_unpaged(&statements.insert, written).await,
            Some(old) => {
                let written = (ttl, version, &new.bytes, key, bits(old));
                session.execute_unpaged(&statements.update, written).await
            }
        };
        match result {
            Ok(result) => rows::swapped(result),
            Err(error) if is_agreed(&error) => Ok(Swapped::Done(None)),
            Err(error) => Err(self.error(&error)),
        }
    }
}

/// The version in the signed numbers of CQL.
fn bits(version: u64) -> i64 {
    i64::from_ne_bytes(version.to_ne_bytes())
}
