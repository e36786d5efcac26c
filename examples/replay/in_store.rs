//! States in a store with a compare-and-swap, where [`Cas`] decides at the times of the trace.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

#[cfg(feature = "cassandra")]
use scylla::client::session_builder::SessionBuilder;
use tokio::runtime::Runtime;
#[cfg(feature = "cassandra")]
use tower_throttle::store::cas::cassandra::Cassandra;
#[cfg(feature = "postgres")]
use tower_throttle::store::cas::postgres::PostgreSql;
use tower_throttle::{
    Decision, StoreError,
    algorithm::AnyAlgorithm,
    clock::Tick,
    store::{
        AnyDecision, Backend, Op, Receipt,
        cas::{Cas, CasStore, Loaded, MemoryStore, Swapped, Value},
    },
};

use crate::{
    policy::{Policy, QuotaChange},
    states::{States, debt_ends, with_figures_of},
};

/// How long a server keeps a value, by its own clock. By the times of the trace it expires earlier or
/// later.
const KEPT: Duration = Duration::from_hours(1);

/// The states in `store`: `memory`, or the URL of a server.
pub(crate) fn open(store: &str, policy: Policy) -> Result<Box<dyn States>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("--store: {error}"))?;
    if store == "memory" {
        return Ok(Box::new(InStore::new(runtime, MemoryStore::new(), policy)?));
    }
    #[cfg(feature = "postgres")]
    if store.starts_with("postgres") {
        // The message omits the URL, which may hold a password.
        let store = PostgreSql::open(store).map_err(|error| format!("--store: {error}"))?;
        let made = runtime.block_on(store.create_table());
        made.map_err(|error| format!("--store: {error}"))?;
        return Ok(Box::new(InStore::new(runtime, store, policy)?));
    }
    #[cfg(feature = "cassandra")]
    if let Some(rest) = store.strip_prefix("cassandra://") {
        let made = cassandra(rest).map(|store| (runtime.block_on(store.create_table()), store));
        let store = match made? {
            (Ok(()), store) => store,
            (Err(error), _) => return Err(format!("--store: {error}")),
        };
        return Ok(Box::new(InStore::new(runtime, store, policy)?));
    }
    Err("--store: expected memory, or the URL of a server of PostgreSQL or Cassandra if built with \
         the feature postgres or cassandra"
        .into())
}

/// The store at `USER:PASSWORD@HOST:PORT/KEYSPACE.TABLE`.
#[cfg(feature = "cassandra")]
fn cassandra(rest: &str) -> Result<Cassandra, String> {
    let parts = || {
        let (login, place) = rest.rsplit_once('@')?;
        let (user, password) = login.split_once(':')?;
        let (node, table) = place.split_once('/')?;
        Some((user, password, node, table))
    };
    // The message omits the URL, which holds a password.
    let (user, password, node, table) =
        parts().ok_or("--store: expected cassandra://USER:PASSWORD@HOST:PORT/KEYSPACE.TABLE")?;
    let builder = SessionBuilder::new().known_node(node).user(user, password);
    let store = Cassandra::with_builder(builder).table(table);
    store.map_err(|error| format!("--store: {error}"))
}

struct InStore<S: CasStore + Clone> {
    runtime: Runtime,
    store: AtTraceTime<S>,
    policy: Policy,
    limiter: Cas<AtTraceTime<S>, AnyAlgorithm>,
    names: Vec<String>,
}

impl<S: CasStore + Clone> InStore<S> {
    fn new(runtime: Runtime, store: S, policy: Policy) -> Result<Self, String> {
        let store = AtTraceTime {
            store,
            now: Arc::default(),
            is_dry: Arc::default(),
            written: Arc::default(),
        };
        let limiter = limiter(&store, &policy)?;
        Ok(Self {
            runtime,
            store,
            policy,
            limiter,
            names: Vec::new(),
        })
    }

    /// Calls the limiter for a key at a time.
    fn ask(
        &self,
        key: usize,
        now: Tick,
        ask: impl FnOnce(&Cas<AtTraceTime<S>, AnyAlgorithm>, &str) -> AnyDecision,
    ) -> Result<Decision, String> {
        self.store.now.store(now.as_nanos(), Ordering::Relaxed);
        // The limiter looks for a runtime when called.
        let entered = self.runtime.enter();
        let asked = ask(&self.limiter, &self.names[key]);
        drop(entered);
        let decision = self.runtime.block_on(asked);
        decision.map_err(|error| error.to_string())
    }

    fn apply(&self, key: usize, now: Tick, op: Op) -> Result<Decision, String> {
        self.ask(key, now, |limiter, name| limiter.apply(name, op))
    }

    /// The decision of an operation that is not written.
    fn dry_apply(&self, key: usize, now: Tick, op: Op) -> Result<Decision, String> {
        self.dry(|| self.apply(key, now, op))
    }

    /// The decision of a request in the queue that is not written.
    fn dry_reserve(
        &self,
        key: usize,
        now: Tick,
        n: u64,
        max_wait: Duration,
    ) -> Result<Decision, String> {
        self.dry(|| self.apply(key, now, reserve(n, max_wait)))
    }

    /// A decision after which nothing is written.
    fn dry(&self, decide: impl FnOnce() -> Result<Decision, String>) -> Result<Decision, String> {
        self.store.is_dry.store(true, Ordering::Relaxed);
        let decision = decide();
        self.store.is_dry.store(false, Ordering::Relaxed);
        decision
    }
}

/// A turn in a line of any length.
pub(crate) const fn reserve(cost: u64, max_wait: Duration) -> Op {
    let queue = u64::MAX;
    Op::Reserve {
        cost,
        queue,
        max_wait,
    }
}

impl<S: CasStore + Clone> States for InStore<S> {
    fn begin(&mut self, name: &str, now: Tick) -> Result<(), String> {
        self.names.push(name.to_owned());
        // A store creates a key at its first write, the replay at its first use. Only a bucket that does
        // not begin full is written.
        self.reset(self.names.len() - 1, now)
    }

    fn decide(&mut self, key: usize, now: Tick, n: u64) -> Result<Decision, String> {
        self.apply(key, now, Op::Take(n))
    }

    fn reserve(
        &mut self,
        key: usize,
        now: Tick,
        n: u64,
        max_wait: Duration,
    ) -> Result<Decision, String> {
        self.apply(key, now, reserve(n, max_wait))
    }

    fn peek(&mut self, key: usize, now: Tick, n: u64) -> Result<Decision, String> {
        self.apply(key, now, Op::Peek(n))
    }

    fn peek_at_line(
        &mut self,
        key: usize,
        now: Tick,
        n: u64,
        max_wait: Duration,
    ) -> Result<Decision, String> {
        let rest = self.dry_reserve(key, now, 0, Duration::MAX)?;
        let decision = self.dry_reserve(key, now, n, max_wait)?;
        Ok(with_figures_of(decision, &rest))
    }

    fn refund(&mut self, key: usize, now: Tick, n: u64) -> Result<(), String> {
        let refund = Op::Refund(n, Receipt::at(now.as_nanos()));
        self.apply(key, now, refund).map(drop)
    }

    fn charge(&mut self, key: usize, now: Tick, n: u64) -> Result<Duration, String> {
        let decision = self.apply(key, now, Op::Charge(n))?;
        // A request of cost zero waits until a debt is paid, and for the requests before it.
        let next = self.dry_reserve(key, now, 0, Duration::MAX)?;
        if let Some(wait) = next.wait().filter(|wait| !wait.is_zero()) {
            return Ok(wait);
        }
        debt_ends(decision.reset_after, |after| {
            let refund = Op::Refund(1, Receipt::NOW);
            let decision = self.dry_apply(key, now.plus(after), refund)?;
            Ok(decision.remaining() == 0)
        })
    }

    fn reset(&mut self, key: usize, now: Tick) -> Result<(), String> {
        self.apply(key, now, Op::Reset).map(drop)
    }

    fn set_quota(
        &mut self,
        _policy: &Policy,
        change: &QuotaChange,
        now: Tick,
    ) -> Result<(), String> {
        self.policy.set_quota(change, 1)?;
        self.limiter = limiter(&self.store, &self.policy)?;
        for key in 0..self.names.len() {
            // A state is converted when it is written: write all states now.
            let _ = self.apply(key, now, Op::Refund(0, Receipt::at(0)))?;
        }
        Ok(())
    }
}

/// Lets the keys of the replay expire.
impl<S: CasStore + Clone> Drop for InStore<S> {
    fn drop(&mut self) {
        let store = &self.store;
        let written = std::mem::take(&mut *store.written());
        self.runtime.block_on(async {
            for (key, Written { version, .. }) in written {
                let nothing = Value {
                    version,
                    bytes: Vec::new(),
                };
                let swapped = store
                    .store
                    .swap(&key, Some(version), &nothing, Duration::ZERO);
                // If the store cannot be reached, the keys expire within an hour.
                let _ = swapped.await;
            }
        });
    }
}

fn limiter<S: CasStore + Clone>(
    store: &AtTraceTime<S>,
    policy: &Policy,
) -> Result<Cas<AtTraceTime<S>, AnyAlgorithm>, String> {
    // Keys of other replays, running or killed, must not be used. Without kept records each decision is
    // at the store's time.
    let name = format!("replay.{}", std::process::id());
    let limiter = Cas::new(store.clone(), &name, policy.algorithm.clone());
    let limiter = limiter.map_err(|error| format!("in a store: {error}"))?;
    let limiter = limiter.deadline(Duration::from_secs(10));
    Ok(limiter.without_deny_cache().cached_keys(0))
}

/// A store that reports the time of the trace and lets values expire by it.
#[derive(Clone, Debug)]
struct AtTraceTime<S> {
    store: S,
    /// In nanoseconds.
    now: Arc<AtomicU64>,
    /// Whether swaps succeed without being written.
    is_dry: Arc<AtomicBool>,
    /// What was written last, per key.
    written: Arc<Mutex<HashMap<String, Written>>>,
}

#[derive(Clone, Copy, Debug)]
struct Written {
    version: u64,
    expires_at: Tick,
}

impl<S> AtTraceTime<S> {
    fn now(&self) -> Tick {
        Tick::from_nanos(self.now.load(Ordering::Relaxed))
    }

    fn written(&self) -> MutexGuard<'_, HashMap<String, Written>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The version of a value that has expired by the time of the trace.
    fn expired(&self, key: &str) -> Option<u64> {
        let written = self.written().get(key).copied();
        let expired = written.filter(|written| written.expires_at <= self.now());
        expired.map(|written| written.version)
    }
}

impl<S: CasStore> CasStore for AtTraceTime<S> {
    const NAME: &'static str = S::NAME;

    async fn load(&self, key: &str) -> Result<Loaded, StoreError> {
        let value = self.store.load(key).await?.value;
        let value = value.filter(|_| self.expired(key).is_none());
        Ok(Loaded {
            value,
            server_time: Some(self.now()),
        })
    }

    async fn swap(
        &self,
        key: &str,
        expected: Option<u64>,
        new: &Value,
        ttl: Duration,
    ) -> Result<Swapped, StoreError> {
        let now = self.now();
        if self.is_dry.load(Ordering::Relaxed) {
            return Ok(Swapped::Done(Some(now)));
        }
        let expected = expected.or_else(|| self.expired(key));
        let Swapped::Done(_) = self.store.swap(key, expected, new, KEPT).await? else {
            return Ok(Swapped::Conflict(None));
        };
        let written = Written {
            version: new.version,
            expires_at: now.plus(ttl),
        };
        self.written().insert(key.to_owned(), written);
        Ok(Swapped::Done(Some(now)))
    }
}
