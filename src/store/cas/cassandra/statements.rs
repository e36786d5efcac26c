//! The prepared statements.

use std::{fmt, sync::Arc};

use scylla::{
    client::session::Session,
    errors::PrepareError,
    policies::{
        load_balancing::{DefaultPolicy, LoadBalancingPolicy},
        retry::FallthroughRetryPolicy,
    },
    statement::{Consistency, SerialConsistency, prepared::PreparedStatement},
};

use super::{cql::Cql, error::from_prepare, session::Connected};
use crate::error::StoreError;
use crate::sync::{Mutex, lock};

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
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) load: PreparedStatement,
    pub(super) insert: PreparedStatement,
    pub(super) update: PreparedStatement,
}

impl Statements {
    pub(super) async fn prepare(
        session: &Session,
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
        let mut load = session.prepare(cql.load.as_str()).await?;
        load.set_consistency(read);
        load.set_is_idempotent(true);
        load.set_load_balancing_policy(Some(Arc::clone(&policy)));
        let mut swaps = [
            session.prepare(cql.insert.as_str()).await?,
            session.prepare(cql.update.as_str()).await?,
        ];
        for swap in &mut swaps {
            swap.set_consistency(write);
            swap.set_serial_consistency(Some(serial));
            // The driver must not send a swap again: it may have been executed.
            swap.set_is_idempotent(false);
            swap.set_retry_policy(Some(Arc::new(FallthroughRetryPolicy::new())));
            swap.set_load_balancing_policy(Some(Arc::clone(&policy)));
        }
        let [insert, update] = swaps;
        Ok(Self {
            load,
            insert,
            update,
        })
    }
}

/// The statements of the present session.
#[derive(Default)]
pub(super) struct Prepared {
    present: Mutex<Option<(Arc<Connected>, Arc<Statements>)>>,
    /// Held while they are prepared, so that many first calls prepare them once.
    preparing: tokio::sync::Mutex<()>,
}

impl Prepared {
    pub(super) async fn get(
        &self,
        connected: &Arc<Connected>,
        cql: &Cql,
        agreement: &Agreement,
    ) -> Result<Arc<Statements>, StoreError> {
        if let Some(statements) = self.present(connected) {
            return Ok(statements);
        }
        let _preparing = self.preparing.lock().await;
        if let Some(statements) = self.present(connected) {
            return Ok(statements);
        }
        agreement.check(connected)?;
        let prepared = Statements::prepare(&connected.session, cql, agreement).await;
        let statements = prepared.map_err(|error| from_prepare(&error, &cql.table))?;
        let statements = Arc::new(statements);
        let new = (Arc::clone(connected), Arc::clone(&statements));
        let old = lock(&self.present).replace(new);
        drop(old);
        Ok(statements)
    }

    fn present(&self, connected: &Arc<Connected>) -> Option<Arc<Statements>> {
        let present = lock(&self.present);
        let (of, statements) = present.as_ref()?;
        Arc::ptr_eq(of, connected).then(|| Arc::clone(statements))
    }
}

/// Manual impl: the session is not `Debug`.
impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").finish_non_exhaustive()
    }
}
