//! The prepared statements.

use std::{sync::Arc, time::Duration};

use scylla::{
    errors::PrepareError,
    policies::{
        load_balancing::{DefaultPolicy, LoadBalancingPolicy},
        retry::FallthroughRetryPolicy,
    },
    statement::{Consistency, SerialConsistency, prepared::PreparedStatement},
};

use super::{
    cql::Cql,
    error::from_prepare,
    session::{Connected, Sessions, only},
};
use crate::error::StoreError;
use crate::store::remote::{Connect, Connector};

/// Which replicas agree on a swap.
#[derive(Clone, Debug, Default)]
pub(super) struct Agreement {
    /// The data center whose nodes are asked, if it is named.
    pub(super) datacenter: Option<String>,
    /// Whether the replicas in all data centers agree, or those in one.
    pub(super) across: bool,
}

impl Agreement {
    /// Refuses a cluster in which it is not clear whose limit it is.
    fn check(&self, connected: &Connected) -> Result<(), StoreError> {
        let known = connected.datacenters();
        let text = match &self.datacenter {
            Some(name) if !known.is_empty() && !known.contains(name) => {
                format!("Cassandra: datacenter: {name:?} is not one of {known:?}")
            }
            None if known.len() > 1 && !self.across => format!(
                "Cassandra: the nodes are in the data centers {known:?}, and each has a limit of its \
                 own: name the one of this machine with `datacenter`, or call `across_datacenters`"
            ),
            _ => return Ok(()),
        };
        Err(StoreError::new(text, false))
    }

    /// Asks the same replica of a key first, so that few coordinators compete for a key.
    fn policy(&self) -> Arc<dyn LoadBalancingPolicy> {
        let policy = DefaultPolicy::builder()
            .token_aware(true)
            .enable_shuffling_replicas(false);
        match &self.datacenter {
            // Another data center would agree on another value.
            Some(name) => policy
                .prefer_datacenter(name.clone())
                .permit_dc_failover(self.across),
            None => policy,
        }
        .build()
    }
}

/// The statements of one table in one session.
pub(super) struct Statements {
    pub(super) connected: Arc<Connected>,
    pub(super) load: PreparedStatement,
    pub(super) insert: PreparedStatement,
    pub(super) update: PreparedStatement,
}

impl Statements {
    /// Prepares them.
    pub(super) async fn prepare(
        connected: &Arc<Connected>,
        cql: &Cql,
        agreement: &Agreement,
    ) -> Result<Self, PrepareError> {
        let (serial, read, write) = if agreement.across {
            (
                SerialConsistency::Serial,
                Consistency::Serial,
                Consistency::Quorum,
            )
        } else {
            (
                SerialConsistency::LocalSerial,
                Consistency::LocalSerial,
                Consistency::LocalQuorum,
            )
        };
        let policy = agreement.policy();
        let session = &connected.session;
        let mut load = session.prepare(cql.load.as_str()).await?;
        let mut insert = session.prepare(cql.insert.as_str()).await?;
        let mut update = session.prepare(cql.update.as_str()).await?;
        load.set_consistency(read);
        load.set_is_idempotent(true);
        load.set_load_balancing_policy(Some(Arc::clone(&policy)));
        for swap in [&mut insert, &mut update] {
            swap.set_consistency(write);
            swap.set_serial_consistency(Some(serial));
            // The driver must not send a swap again: it may have been executed.
            swap.set_is_idempotent(false);
            swap.set_retry_policy(Some(Arc::new(FallthroughRetryPolicy::new())));
            swap.set_load_balancing_policy(Some(Arc::clone(&policy)));
        }
        Ok(Self {
            connected: Arc::clone(connected),
            load,
            insert,
            update,
        })
    }
}

/// The table of a store, and how its statements are prepared: by a task, because a call may end before
/// that is done.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) sessions: Arc<Sessions>,
    pub(super) cql: Cql,
    pub(super) agreement: Agreement,
}

/// The prepared statements of a store.
pub(super) type Prepared = Connector<Table>;

impl Prepared {
    pub(super) async fn statements(self: &Arc<Self>) -> Result<Arc<Statements>, StoreError> {
        let is_usable = |statements: &Statements| statements.connected.is_usable();
        self.get(|made| only(made, is_usable)).await
    }
}

impl Connect for Table {
    type Connection = Arc<Statements>;

    const STORE: &'static str = "Cassandra";
    const WHAT: &'static str = "prepared statements";
    /// A mistake, such as a missing table, may be repaired at any time.
    const PAUSE: Duration = Duration::ZERO;

    /// Longer than connecting takes.
    fn timeout(&self) -> Duration {
        Duration::from_secs(20)
    }

    async fn connect(&self) -> Result<Arc<Statements>, StoreError> {
        let connected = self.sessions.session().await?;
        self.agreement.check(&connected)?;
        let prepared = Statements::prepare(&connected, &self.cql, &self.agreement).await;
        let prepared = prepared.map_err(|error| from_prepare(&error, &self.cql.table));
        prepared.map(Arc::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The driver shows its setting only as text.
    ///
    /// Shows promise 242.
    #[test]
    fn another_data_center_is_asked_only_if_all_have_one_limit() {
        for across in [false, true] {
            let agreement = Agreement {
                datacenter: Some("eu-west".to_owned()),
                across,
            };
            let policy = format!("{:?}", agreement.policy());
            assert!(policy.contains("Datacenter(\"eu-west\")"), "{policy}");
            let failover = format!("permit_dc_failover: {across}");
            assert!(policy.contains(&failover), "{policy}");
        }
    }
}
