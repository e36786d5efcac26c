//! A connection: made by the first call, replaced when it breaks, and never retried implicitly.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use redis::{Cmd, RedisError, Value};
use tokio::runtime::Handle;

use super::{
    reply::ErrorClass,
    source::{RawConnection, Source},
};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::StoreError;
use crate::store::remote::{Connect, Connector, Pick, is_own_thread, rare, task_runtime};

/// The kind of store, as errors and logs name it.
pub(super) const STORE: &str = "Redis";
/// A younger connection to a cluster is not replaced: its slots are where they were, and a server that is silent does not
/// reply on another one either.
const MIN_CLUSTER_AGE: Duration = Duration::from_secs(1);
/// After so many calls in a row without a reply, the connection counts as dead.
const MAX_UNANSWERED: u32 = 3;

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

/// A connection that was made.
struct Live {
    raw: RawConnection,
    /// Whether it has to be replaced.
    is_broken: AtomicBool,
    /// Calls in a row without a reply.
    unanswered: AtomicU32,
    made_at: Tick,
}

/// The error of a call and its class.
#[derive(Debug)]
pub(super) struct CallError {
    pub(super) class: ErrorClass,
    pub(super) error: StoreError,
}

impl Connection {
    pub(super) fn new(source: Source) -> Arc<Self> {
        let source = Arc::new(source);
        let connector = |is_apart| {
            let source = Arc::clone(&source);
            Connector::new(Target { source, is_apart }, Vec::new())
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

    /// The last error of connecting, if there is no connection.
    pub(super) fn last_error(&self) -> Option<StoreError> {
        self.connector().last_error()
    }

    /// Sends a command once. Connects first if necessary.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, CallError> {
        let live = self.live().await?;
        let mut guard = ReplyGuard {
            live: &live,
            replied: false,
        };
        let mut raw = live.raw.clone();
        let reply = raw.send(command).await;
        guard.replied = true;
        drop(guard);
        reply.map_err(|error| call_error(&error, &live))
    }

    async fn live(&self) -> Result<Arc<Live>, CallError> {
        // If there are two, `pick` drops the older one.
        let live = self.connector().find(|made| match made {
            [live] if !live.is_broken.load(Ordering::Relaxed) => Some(Arc::clone(live)),
            _ => None,
        });
        match live {
            Some(live) => Ok(live),
            None => rare(self.live_or_connect()).await,
        }
    }

    async fn live_or_connect(&self) -> Result<Arc<Live>, CallError> {
        let live = self.connector().get(pick).await;
        live.map_err(|error| CallError {
            class: if error.is_transient() {
                ErrorClass::Unavailable
            } else {
                ErrorClass::Permanent
            },
            error,
        })
    }
}

/// The connection that was made last. One that broke leads to other servers of its cluster until there is
/// another.
fn pick(made: &mut Vec<Arc<Live>>) -> Pick<Arc<Live>, Arc<Live>> {
    let last = made.pop();
    let mut unusable = std::mem::take(made);
    let wants_another = last
        .as_ref()
        .is_none_or(|live| live.is_broken.load(Ordering::Relaxed));
    let picked = match last {
        Some(live) if wants_another && !live.raw.is_cluster() => {
            unusable.push(live);
            None
        }
        last => last,
    };
    made.extend(picked.clone());
    Pick {
        picked,
        wants_another,
        unusable,
    }
}

/// The error of a call on a connection, which is given up if it broke.
#[cold]
fn call_error(error: &RedisError, live: &Arc<Live>) -> CallError {
    let class = ErrorClass::from_error(error);
    if class.invalidates_connection() {
        live.invalidate();
    }
    CallError {
        class,
        error: class.to_store_error(error, live.raw.is_cluster()),
    }
}

impl Live {
    /// Gives it up, unless another one would be the same.
    fn invalidate(&self) {
        let age = MonotonicClock.now().since(self.made_at);
        if !self.raw.is_cluster() || age >= MIN_CLUSTER_AGE {
            self.is_broken.store(true, Ordering::Relaxed);
        }
    }
}

/// Dropped without a reply, it counts the call as unanswered.
struct ReplyGuard<'a> {
    live: &'a Arc<Live>,
    replied: bool,
}

impl Drop for ReplyGuard<'_> {
    fn drop(&mut self) {
        let unanswered = &self.live.unanswered;
        if self.replied {
            unanswered.store(0, Ordering::Relaxed);
            return;
        }
        let unanswered = unanswered.fetch_add(1, Ordering::Relaxed) + 1;
        // In a cluster, replies of other servers reset the count.
        if unanswered >= MAX_UNANSWERED || self.live.raw.is_cluster() {
            self.live.invalidate();
        }
    }
}

impl Connect for Target {
    type Connection = Arc<Live>;

    const STORE: &'static str = STORE;
    const WHAT: &'static str = "connection";
    const PAUSE: Duration = Duration::from_millis(50);

    fn timeout(&self) -> Duration {
        self.source.connect_timeout()
    }

    fn runtime(&self) -> Result<Handle, StoreError> {
        task_runtime(STORE, self.is_apart)
    }

    async fn connect(&self) -> Result<Arc<Live>, StoreError> {
        let raw = self.source.connect().await.map_err(|error| {
            let class = ErrorClass::from_connect_error(&error);
            class.to_store_error(&error, self.source.is_cluster())
        });
        Ok(Arc::new(Live {
            raw: raw?,
            is_broken: AtomicBool::new(false),
            unanswered: AtomicU32::new(0),
            made_at: MonotonicClock.now(),
        }))
    }
}

/// Manual impl: the URL may hold a password.
impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use redis::{RedisConnectionInfo, aio::MultiplexedConnection};

    use super::*;

    #[tokio::test]
    async fn three_calls_in_a_row_without_a_reply_break_a_connection() {
        let settings = RedisConnectionInfo::default().set_skip_set_lib_name();
        let (stream, _) = tokio::io::duplex(1);
        let raw = MultiplexedConnection::new(&settings, stream).await;
        let live = Arc::new(Live {
            raw: RawConnection::Single(raw.expect("a connection").0),
            is_broken: AtomicBool::new(false),
            unanswered: AtomicU32::new(0),
            made_at: MonotonicClock.now(),
        });
        for (replied, breaks) in [
            (false, false),
            (false, false),
            (true, false),
            (false, false),
            (false, false),
            (false, true),
        ] {
            let live = &live;
            drop(ReplyGuard { live, replied });
            assert_eq!(live.is_broken.load(Ordering::Relaxed), breaks);
        }
    }
}
