//! The session: made by the first call, in the background.

use std::{collections::BTreeSet, panic::catch_unwind, sync::Arc, time::Duration};

use scylla::client::{session::Session, session_builder::SessionBuilder};
use tokio::task::AbortHandle;

use super::error::from_new_session;
use crate::error::StoreError;
use crate::store::remote::{Connect, Connector, Pick};

/// Where the session comes from.
pub(super) enum Source {
    /// Made when it is needed.
    Builder(Box<SessionBuilder>),
    /// The program's.
    Session(Arc<Session>),
}

/// A session, and whether it works.
pub(super) struct Connected {
    pub(super) session: Arc<Session>,
    /// A task that does nothing, and ends with the runtime on which the session works.
    runtime: Option<AbortHandle>,
}

impl Connected {
    fn new(session: Arc<Session>, runtime: Option<AbortHandle>) -> Arc<Self> {
        Arc::new(Self { session, runtime })
    }

    pub(super) fn is_usable(&self) -> bool {
        self.runtime.as_ref().is_none_or(|task| !task.is_finished())
    }

    /// The names of the data centers that the nodes are in.
    pub(super) fn datacenters(&self) -> BTreeSet<String> {
        let state = self.session.get_cluster_state();
        let nodes = state.get_nodes_info().iter();
        nodes.filter_map(|node| node.datacenter.clone()).collect()
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        if let Some(task) = &self.runtime {
            task.abort();
        }
    }
}

/// The session of a store. The driver replaces connections that break.
pub(super) type Sessions = Connector<Source>;

impl Sessions {
    pub(super) fn from_source(source: Source) -> Arc<Self> {
        let connected = match &source {
            Source::Builder(_) => Vec::new(),
            Source::Session(session) => vec![Connected::new(Arc::clone(session), None)],
        };
        Self::new(source, connected)
    }

    pub(super) async fn session(self: &Arc<Self>) -> Result<Arc<Connected>, StoreError> {
        self.get(|sessions| only(sessions, Connected::is_usable))
            .await
    }
}

/// The only one that there is, if it is usable.
pub(super) fn only<T>(
    made: &mut Vec<Arc<T>>,
    is_usable: impl Fn(&T) -> bool,
) -> Pick<Arc<T>, Arc<T>> {
    let picked = made.last().filter(|last| is_usable(last)).cloned();
    let wants_another = picked.is_none();
    let unusable = if wants_another {
        std::mem::take(made)
    } else {
        Vec::new()
    };
    Pick {
        picked,
        wants_another,
        unusable,
    }
}

impl Connect for Source {
    type Connection = Arc<Connected>;

    const STORE: &'static str = "Cassandra";
    const WHAT: &'static str = "connection";
    const PAUSE: Duration = Duration::from_millis(200);

    /// To a node, which has to name the others.
    fn timeout(&self) -> Duration {
        Duration::from_secs(10)
    }

    async fn connect(&self) -> Result<Arc<Connected>, StoreError> {
        let builder = match self {
            Self::Builder(builder) => builder,
            Self::Session(session) => return Ok(Connected::new(Arc::clone(session), None)),
        };
        check_timers()?;
        // Boxed: it is large.
        let session = Box::pin(builder.build()).await;
        let session = session.map_err(|error| from_new_session(&error))?;
        let runtime = tokio::spawn(std::future::pending::<()>()).abort_handle();
        Ok(Connected::new(Arc::new(session), Some(runtime)))
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
