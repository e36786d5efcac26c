//! A connection: made by the first call, replaced when it breaks, and never retried implicitly.

use std::{fmt, sync::Arc, time::Duration};

use redis::{Cmd, Value};
use tokio::runtime::Handle;

use super::{
    reply::ErrorClass,
    source::{CONNECT_TIMEOUT, RawConnection, Source},
};
use crate::error::StoreError;
use crate::store::remote::{Connect, Connector, is_own_thread, task_runtime};

/// The kind of store, as errors and logs name it.
pub(super) const STORE: &str = "Redis";

/// The connection of a [`Redis`](super::Redis).
pub(super) struct Connection {
    connector: Arc<Connector<Target>>,
    /// That of the thread of this crate, if it is of use.
    apart: Arc<Connector<Target>>,
}

/// What a connection leads to.
struct Target {
    source: Arc<Source>,
    is_apart: bool,
}

/// The error of a call and its class.
#[derive(Debug)]
pub(in crate::store) struct CallError {
    pub(super) class: ErrorClass,
    pub(super) error: StoreError,
}

impl Connection {
    pub(super) fn new(source: Source) -> Arc<Self> {
        let source = Arc::new(source);
        let connector = |is_apart| {
            let source = Arc::clone(&source);
            Connector::new(Target { source, is_apart })
        };
        Arc::new(Self {
            connector: connector(false),
            apart: connector(true),
        })
    }

    /// That of this thread.
    fn connector(&self) -> &Arc<Connector<Target>> {
        if is_own_thread() {
            &self.apart
        } else {
            &self.connector
        }
    }

    /// Whether its client is that of a cluster.
    pub(super) fn is_cluster(&self) -> bool {
        self.connector.settings().source.is_cluster()
    }

    /// Sends a command once. Connects first if necessary.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, CallError> {
        let taken = self.connector().get().await.map_err(|error| CallError {
            class: if error.is_transient() {
                ErrorClass::Unavailable
            } else {
                ErrorClass::Permanent
            },
            error,
        })?;
        let mut raw = taken.clone();
        let reply = raw.send(command).await.map_err(|error| {
            let class = ErrorClass::from_error(&error);
            let error = class.to_store_error(&error, self.is_cluster());
            CallError { class, error }
        });
        let is_broken = |error: &CallError| error.class.invalidates_connection();
        taken.release(reply.as_ref().is_err_and(is_broken));
        reply
    }
}

impl Connect for Target {
    type Connection = RawConnection;

    const STORE: &'static str = STORE;
    const PAUSE: Duration = Duration::from_millis(50);

    fn timeout(&self) -> Duration {
        // The client of a cluster may wait for several servers in turn.
        CONNECT_TIMEOUT * if self.source.is_cluster() { 4 } else { 1 }
    }

    fn runtime(&self) -> Result<Handle, StoreError> {
        task_runtime(STORE, self.is_apart)
    }

    fn has_several_servers(&self) -> bool {
        self.source.is_cluster()
    }

    async fn connect(&self) -> Result<RawConnection, StoreError> {
        self.source.connect().await.map_err(|error| {
            let class = ErrorClass::from_connect_error(&error);
            class.to_store_error(&error, self.source.is_cluster())
        })
    }
}

/// Manual impl: the URL may hold a password.
impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}
