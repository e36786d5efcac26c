//! The session and the prepared statements: made by the first call, in the background.

use std::{collections::BTreeSet, panic::catch_unwind, sync::Arc, time::Duration};

use scylla::{
    client::{session::Session, session_builder::SessionBuilder},
    errors::PrepareError,
    policies::{
        load_balancing::{DefaultPolicy, LoadBalancingPolicy},
        retry::FallthroughRetryPolicy,
    },
    statement::{Consistency, SerialConsistency, prepared::PreparedStatement},
};
use tokio::task::AbortHandle;

use super::{
    cql::Cql,
    error::{from_new_session, from_prepare},
};
use crate::error::StoreError;
use crate::store::remote::Connect;

/// Where the session comes from.
#[derive(Clone)]
pub(super) enum Source {
    /// Made when it is needed.
    Builder(Arc<SessionBuilder>),
    /// The program's.
    Session(Arc<Session>),
}

impl Source {
    pub(super) async fn session(&self) -> Result<Arc<Session>, StoreError> {
        let builder = match self {
            Self::Builder(builder) => builder,
            Self::Session(session) => return Ok(Arc::clone(session)),
        };
        check_timers()?;
        // Boxed: it is large.
        let session = Box::pin(builder.build()).await;
        session
            .map(Arc::new)
            .map_err(|error| from_new_session(&error))
    }
}

/// Returns an error if this runtime has no timers. The driver would panic in a task of its own, and
/// never connect.
fn check_timers() -> Result<(), StoreError> {
    // tokio reports it only by a panic.
    catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).map_err(|_| {
        let text = "Cassandra: the runtime has no timers, which the driver needs: build it with \
                    `enable_time` or `enable_all`";
        StoreError::new(text, false)
    })
}

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
    fn check(&self, session: &Session) -> Result<(), StoreError> {
        let state = session.get_cluster_state();
        let nodes = state.get_nodes_info().iter();
        let known: BTreeSet<_> = nodes.filter_map(|node| node.datacenter.clone()).collect();
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

/// A session with the statements of one table. The driver replaces connections that break.
pub(super) struct Prepared {
    pub(super) session: Arc<Session>,
    /// A task that does nothing, and ends with the runtime on which the session works, if it was made here.
    runtime: Option<AbortHandle>,
    pub(super) load: PreparedStatement,
    pub(super) insert: PreparedStatement,
    pub(super) update: PreparedStatement,
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if let Some(task) = &self.runtime {
            task.abort();
        }
    }
}

/// The table of a store, and how its statements are prepared: by a task, because a call may end before
/// that is done.
#[derive(Clone)]
pub(super) struct CqlTable {
    pub(super) source: Source,
    pub(super) cql: Cql,
    pub(super) agreement: Agreement,
}

impl CqlTable {
    async fn prepare(&self, session: &Session) -> Result<[PreparedStatement; 3], PrepareError> {
        let (serial, read, write) = if self.agreement.across {
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
        let policy = self.agreement.policy();
        let mut load = session.prepare(self.cql.load.as_str()).await?;
        let mut insert = session.prepare(self.cql.insert.as_str()).await?;
        let mut update = session.prepare(self.cql.update.as_str()).await?;
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
        Ok([load, insert, update])
    }
}

impl Connect for CqlTable {
    type Connection = Prepared;

    const STORE: &'static str = "Cassandra";
    const PAUSE: Duration = Duration::from_millis(200);
    /// The driver replaces connections that break.
    const SILENCE: Duration = Duration::MAX;

    /// To a node, which has to name the others and to prepare the statements.
    fn timeout(&self) -> Duration {
        Duration::from_secs(20)
    }

    /// Its runtime runs.
    fn is_open(&self, prepared: &Prepared) -> bool {
        let runtime = prepared.runtime.as_ref();
        !runtime.is_some_and(AbortHandle::is_finished)
    }

    async fn connect(&self) -> Result<Prepared, StoreError> {
        let session = self.source.session().await?;
        self.agreement.check(&session)?;
        let prepared = self.prepare(&session).await;
        let [load, insert, update] =
            prepared.map_err(|error| from_prepare(&error, &self.cql.table))?;
        let is_own = matches!(self.source, Source::Builder(_));
        let runtime = is_own.then(|| tokio::spawn(std::future::pending::<()>()).abort_handle());
        Ok(Prepared {
            session,
            runtime,
            load,
            insert,
            update,
        })
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
