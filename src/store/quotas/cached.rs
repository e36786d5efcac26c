//! A source of plans that has to be waited for, and the plans that it has said.
//!
//! A lookup is a task of the runtime that served its request. What it finds is in the table of plans when it ends.

use std::{
    collections::HashMap,
    error::Error,
    fmt,
    future::Future,
    hash::{BuildHasher, Hash, RandomState},
    mem,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use tokio::{runtime::Handle, sync::watch};

use super::Lookup;
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::quota::Plan;
use crate::store::deadline::within;
use crate::sync::{Mutex, lock};

/// A source of plans that has to be waited for, such as a database, for [`Quotas`](super::Quotas).
///
/// - The plan of a key is looked up at its first request, which waits for it, and is then fresh for
///   [`life`](Self::life). After that, requests go on under the old plan while the new one is looked up, unless the
///   key was not used for ten lives.
/// - One lookup per key is in flight, and 1,024 at a time. A key for whose lookup there is no room has the default.
/// - A lookup that fails, panics or takes longer than the [`deadline`](Self::deadline) leaves the plan as it was, or
///   gives the default to a key that has none. It is tried again after a second.
/// - At most [`capacity`](Self::capacity) plans are kept.
///
/// Clones share the plans. Lookups run on the tokio runtime of the request.
///
/// ```
/// use tower_throttle::{Quota, RateLimitLayer, StoreError, TokenBucket, store::{Cached, Plan, Quotas}};
///
/// /// In a real program a query, `select .. from plans where customer = $1`.
/// async fn plan_of(customer: u64) -> Result<Plan, StoreError> {
///     Ok(match customer {
///         7 => Plan::Quota(Quota::per_minute(6_000)),
///         666 => Plan::Blocked,
///         _ => Plan::Default,
///     })
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), StoreError> {
/// let plans = Cached::new(plan_of);
/// let limits = Quotas::new(TokenBucket::new(Quota::per_minute(60)), plans.clone());
/// let layer = RateLimitLayer::new(|customer: &u64| *customer, limits);
/// let handle = layer.handle();
/// assert_eq!(handle.peek(&7, 1).await?.limit, 6_000);
/// assert_eq!(handle.peek(&8, 1).await?.limit, 60);
/// assert!(handle.peek(&666, 1).await?.is_denied());
///
/// // When a message says that a plan has changed.
/// plans.refresh(&7);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Cached<K> {
    shared: Arc<Shared<K>>,
    life: Duration,
    deadline: Duration,
    capacity: usize,
}

struct Shared<K> {
    source: Box<dyn Fn(K) -> Asking + Send + Sync>,
    hasher: RandomState,
    plans: [Mutex<Generations>; SHARDS],
    in_flight: Mutex<HashMap<u64, Flight>>,
    last_error: Mutex<Option<String>>,
}

type Asking = Pin<Box<dyn Future<Output = Result<Plan, String>> + Send>>;

const SHARDS: usize = 16;
/// How many lookups are in flight at most.
const LOOKUPS: usize = 1_024;
/// When a lookup that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// For how many lives a plan is used that is not asked for.
const STALE: u32 = 10;

/// What is known of a key.
#[derive(Clone, Copy)]
struct Known {
    /// The default if all lookups have failed.
    plan: Plan,
    fresh_until: Tick,
}

/// Plans that were used lately, and those that were before. Half of the capacity makes a generation; a plan that is
/// used moves to the young one.
#[derive(Default)]
struct Generations {
    young: HashMap<u64, Known>,
    old: HashMap<u64, Known>,
}

/// What a lookup has found, when it has ended.
type Flight = watch::Receiver<Option<Plan>>;

impl<K: Hash + Clone + Send + Sync + 'static> Cached<K> {
    /// Asks `source` for the plan of a key.
    pub fn new<F, E>(source: impl Fn(K) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Plan, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let ask = move |key| -> Asking {
            let asking = source(key);
            Box::pin(async move { asking.await.map_err(|error| error.into().to_string()) })
        };
        Self {
            shared: Arc::new(Shared {
                source: Box::new(ask),
                hasher: RandomState::new(),
                plans: Default::default(),
                in_flight: Mutex::default(),
                last_error: Mutex::default(),
            }),
            life: Duration::from_secs(60),
            deadline: Duration::from_secs(2),
            capacity: 100_000,
        }
    }

    /// How long a plan is fresh: a minute unless set. A change of a plan reaches a key within this time and that of
    /// a lookup, at its next but one request.
    #[must_use]
    pub fn life(mut self, life: Duration) -> Self {
        self.life = life;
        self
    }

    /// How long a lookup may take: two seconds unless set.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How many plans are kept, rounded up to a multiple of 32: 100,000 unless set.
    #[must_use]
    pub fn capacity(mut self, plans: usize) -> Self {
        self.capacity = plans;
        self
    }

    /// Looks the plan of `key` up again at its next request, which goes on under the old one: for a message that a
    /// plan has changed.
    pub fn refresh(&self, key: &K) {
        let hash = self.shared.hasher.hash_one(key);
        // A lookup in flight may have read the plan before it changed.
        lock(&self.shared.in_flight).remove(&hash);
        let now = MonotonicClock.now();
        let mut plans = lock(self.shared.plans_of(hash));
        if let Some(known) = plans.get(hash, self.most()) {
            known.fresh_until = known.fresh_until.min(now);
        }
    }

    /// Why the last lookup has failed that did, or was not started because too many were in flight.
    pub fn last_error(&self) -> Option<String> {
        lock(&self.shared.last_error).clone()
    }

    /// The lookup of a key: the one in flight, or one that begins. `None` if the plan is known by now, or if none can
    /// begin.
    fn look_up(&self, key: &K, hash: u64, now: Tick) -> Option<Flight> {
        let shared = &self.shared;
        let mut in_flight = lock(&shared.in_flight);
        if let Some(running) = in_flight.get(&hash) {
            return Some(running.clone());
        }
        let known = self.known(hash);
        if known.is_some_and(|known| known.fresh_until > now) {
            return None;
        }
        let Ok(runtime) = Handle::try_current() else {
            shared.record_failure("no tokio runtime runs the lookup");
            return None;
        };
        if in_flight.len() >= LOOKUPS {
            shared.record_failure("too many lookups are in flight");
            return None;
        }
        let (tell, flight) = watch::channel(None);
        in_flight.insert(hash, flight.clone());
        drop(in_flight);
        let (key, deadline) = (key.clone(), now.plus(self.deadline));
        let mut task = Task {
            cached: self.clone(),
            hash,
            found: Err("the source panicked or its runtime has ended".to_owned()),
            tell,
        };
        runtime.spawn(async move {
            let found = within(deadline, (task.cached.shared.source)(key)).await;
            let overdue = || Err("the source has not answered within the deadline".to_owned());
            task.found = found.unwrap_or_else(overdue);
            drop(task);
        });
        Some(flight)
    }
}

impl<K: Hash + Clone + Send + Sync + 'static> Lookup<K> for Cached<K> {
    fn plan(&self, key: &K) -> Option<Plan> {
        let (hash, now) = (self.shared.hasher.hash_one(key), MonotonicClock.now());
        let Known { plan, fresh_until } = self.known(hash)?;
        if fresh_until <= now {
            let stale = self.life.saturating_mul(STALE);
            let is_usable = fresh_until.plus(stale) > now;
            let _refresh = is_usable.then(|| self.look_up(key, hash, now))?;
        }
        Some(plan)
    }

    fn wait(&self, key: &K) -> Pin<Box<dyn Future<Output = Plan> + Send>> {
        let (own, now) = (self.clone(), MonotonicClock.now());
        let hash = own.shared.hasher.hash_one(key);
        let flight = self.look_up(key, hash, now);
        Box::pin(async move {
            let Some(mut flight) = flight else {
                let known = own.known(hash);
                return known.map(|known| known.plan).unwrap_or_default();
            };
            // Its runtime may not be driven any more.
            let found = flight.wait_for(Option::is_some);
            let found = within(now.plus(own.deadline), found).await;
            found.and_then(|found| *found.ok()?).unwrap_or_default()
        })
    }
}

/// Ends a lookup, whatever becomes of its task.
struct Task<K> {
    cached: Cached<K>,
    hash: u64,
    found: Result<Plan, String>,
    tell: watch::Sender<Option<Plan>>,
}

impl<K> Drop for Task<K> {
    fn drop(&mut self) {
        let (cached, shared, hash) = (&self.cached, &self.cached.shared, self.hash);
        let mut in_flight = lock(&shared.in_flight);
        let running = in_flight.get(&hash);
        let is_running =
            running.is_some_and(|running| running.same_channel(&self.tell.subscribe()));
        let before = || cached.known(hash).map(|known| known.plan);
        let (plan, fresh_for) = match &self.found {
            Ok(plan) => (*plan, cached.life),
            Err(_) => (before().unwrap_or_default(), cached.life.min(RETRY)),
        };
        if is_running {
            in_flight.remove(&hash);
            let fresh_until = MonotonicClock.now().plus(fresh_for);
            let known = Known { plan, fresh_until };
            lock(shared.plans_of(hash)).insert(hash, known, cached.most());
            if let Err(error) = &self.found {
                shared.record_failure(error);
            }
        }
        self.tell.send_replace(Some(plan));
    }
}

impl<K> Shared<K> {
    fn plans_of(&self, hash: u64) -> &Mutex<Generations> {
        let shard = usize::try_from(hash % SHARDS as u64).unwrap_or_default();
        &self.plans[shard]
    }

    fn record_failure(&self, error: impl fmt::Display) {
        *lock(&self.last_error) = Some(error.to_string());
    }
}

impl<K> Cached<K> {
    /// How many plans make a generation of a shard.
    fn most(&self) -> usize {
        self.capacity.div_ceil(2 * SHARDS).max(1)
    }

    fn known(&self, hash: u64) -> Option<Known> {
        let mut plans = lock(self.shared.plans_of(hash));
        plans.get(hash, self.most()).copied()
    }
}

impl Generations {
    fn get(&mut self, hash: u64, most: usize) -> Option<&mut Known> {
        if let Some(known) = self.old.remove(&hash) {
            self.insert(hash, known, most);
        }
        self.young.get_mut(&hash)
    }

    fn insert(&mut self, hash: u64, known: Known, most: usize) {
        if self.young.len() >= most && !self.young.contains_key(&hash) {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(hash, known);
    }
}

/// Manual impl: keys must not be logged, and sources are closures.
impl<K> fmt::Debug for Cached<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached")
            .field("life", &self.life)
            .finish_non_exhaustive()
    }
}
