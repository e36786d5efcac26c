//! The store.

use std::{sync::Arc, time::Duration};

use scylla::client::{session::Session, session_builder::SessionBuilder};

use super::{
    cql::{Cql, ttl_seconds},
    error::{from_execution, is_agreed, is_invalid},
    rows,
    session::{Connector, Source},
    statements::{Agreement, Prepared, Statements},
};
use crate::clock::unix_seconds;
use crate::error::{ConfigError, StoreError, expect_valid};
use crate::store::cas::{CasStore, Loaded, Swapped, Value, Version};

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
    connector: Arc<Connector>,
    cql: Arc<Cql>,
    agreement: Arc<Agreement>,
    prepared: Arc<Prepared>,
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
        Self::from_source(Source::Builder(Box::new(builder)))
    }

    /// A store that uses a session of the program.
    ///
    /// The statements of the store have their own consistency, and ask the same replica of a key
    /// first, whatever the profile of the session says.
    pub fn with_session(session: Arc<Session>) -> Self {
        Self::from_source(Source::Session(session))
    }

    fn from_source(source: Source) -> Self {
        Self {
            connector: Connector::new(source),
            cql: Arc::new(expect_valid(Cql::new(DEFAULT_TABLE))),
            agreement: Arc::default(),
            prepared: Arc::default(),
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
    pub fn table(mut self, name: &str) -> Result<Self, ConfigError> {
        self.cql = Arc::new(Cql::new(name)?);
        Ok(self.anew())
    }

    /// The data center of this machine: only its nodes are asked. It is needed in a cluster of
    /// several, because each has a limit of its own.
    #[must_use]
    pub fn datacenter(mut self, name: &str) -> Self {
        self.agreement = Arc::new(Agreement {
            datacenter: Some(name.to_owned()),
            ..(*self.agreement).clone()
        });
        self.anew()
    }

    /// Makes it one limit for all data centers (`SERIAL` and `QUORUM`).
    ///
    /// All machines have to agree on this: the two kinds of lightweight transactions do not see each
    /// other.
    #[must_use]
    pub fn across_datacenters(mut self) -> Self {
        self.agreement = Arc::new(Agreement {
            across: true,
            ..(*self.agreement).clone()
        });
        self.anew()
    }

    /// Does not share prepared statements with clones that have other settings.
    fn anew(mut self) -> Self {
        self.prepared = Arc::default();
        self
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
        self.cql.migration.clone()
    }

    /// Makes the table, unless it exists. The keyspace has to exist: only you know its replication.
    ///
    /// # Errors
    /// If no node replies, if the role may not make or use the table, or if there is another table
    /// of this name.
    pub async fn create_table(&self) -> Result<(), StoreError> {
        let connected = self.connector.get().await?;
        let prepared = Statements::prepare(&connected.session, &self.cql, &self.agreement).await;
        // A role that may use the table need not be one that may make it.
        if prepared.as_ref().err().is_some_and(is_invalid) {
            let statement = self.cql.migration.as_str();
            let made = connected.session.query_unpaged(statement, ()).await;
            made.map_err(|error| from_execution(&error, &self.cql.table))?;
        }
        self.check().await
    }

    /// Finds out whether the table is there, and may be read.
    ///
    /// # Errors
    /// Says what is missing.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.load("check").await.map(drop)
    }
}

impl CasStore for Cassandra {
    const NAME: &'static str = "Cassandra";

    async fn load(&self, key: &str) -> Result<Loaded, StoreError> {
        let connected = self.connector.get().await?;
        let prepared = self.prepared.get(&connected, &self.cql, &self.agreement);
        let statement = &prepared.await?.load;
        let result = connected.session.execute_unpaged(statement, (key,)).await;
        rows::loaded(result.map_err(|error| from_execution(&error, &self.cql.table))?)
    }

    async fn swap(
        &self,
        key: &str,
        expected: Option<Version>,
        new: &Value,
        ttl: Duration,
    ) -> Result<Swapped, StoreError> {
        let connected = self.connector.get().await?;
        let prepared = self.prepared.get(&connected, &self.cql, &self.agreement);
        let prepared = prepared.await?;
        let session = &connected.session;
        let (ttl, version) = (ttl_seconds(ttl, unix_seconds()), bits(new.version));
        let written = (ttl, version, &new.bytes, key);
        let result = match expected {
            None => session.execute_unpaged(&prepared.insert, written).await,
            Some(old) => {
                let written = (ttl, version, &new.bytes, key, bits(old));
                session.execute_unpaged(&prepared.update, written).await
            }
        };
        match result {
            Ok(result) => rows::swapped(result),
            Err(error) if is_agreed(&error) => Ok(Swapped::Done(None)),
            Err(error) => Err(from_execution(&error, &self.cql.table)),
        }
    }
}

/// The version in the signed numbers of CQL.
fn bits(version: Version) -> i64 {
    i64::from_ne_bytes(version.as_u64().to_ne_bytes())
}
