//! Permits that the machines of a fleet have together, in a store.
//!
//! [`FleetLimit`] is given to a [`ConcurrencyLimitLayer`](super::ConcurrencyLimitLayer) in place of a number.
//!
//! # How a permit is taken
//! The store has one value per key, which says for each machine with requests in flight how many permits it holds,
//! and until when. A request waits for one compare-and-swap, which requests of one key that come at the
//! same time share. A task per key in use does that, and it renews what the machine holds each third of a
//! [life](FleetLimit::life). It returns permits as soon as they are released, or they go to the next request that
//! waits here. The task ends a second after the last request.
//!
//! Dropping a permit never waits for the store. Each swap states how many permits the machine holds, so one that gets
//! no reply is made up for by the next, and no permit is lost or counted twice.
//!
//! # What is promised
//! - At most the limit is in flight on all machines together, as long as each machine reaches the store
//!   within each life.
//! - The permits of a machine that crashed are free again within a life after its last renewal.
//! - A machine that does not reach the store for a life admits no more requests. Those that it has in flight go on, in
//!   addition to what other machines admit then. When it reaches the store again, they count.
//! - A store that loses its values, fails over to a copy without them, or has one that cannot be read, which is replaced,
//!   admits at most the limit anew, beside the requests that are in flight. A third of a life later they count again.
//! - The same is true if the clock of the store jumps ahead, or if the monotonic clock of a machine stands still, as in
//!   the sleep of a Linux machine. Machines whose own clocks decide, as with Cassandra, must
//!   differ by less than a third of a life.
//!
//! # Waiting
//! Requests of one machine wait in their [order](super::ConcurrencyLimitLayer::newest_first), by priority. Between
//! machines there is no order: those that wait ask the store again after 5 to 100 ms. One that has room looks four times a
//! second whether others wait, while requests come. While several machines want more than there is, each gets its equal
//! share, in turns of a second if there are fewer permits than machines.
//! A request that gets a permit counts as admitted, whether it has waited only for the store or for others too.
//!
//! # Failure
//! If the store does not reply within the [deadline](FleetLimit::deadline), or its circuit breaker is open,
//! new requests pass, or with [`deny_on_store_error`](super::ConcurrencyLimitLayer::deny_on_store_error) are denied. For a bound
//! on each machine while it is down, add a second layer with a number.

mod table;

use std::{fmt, sync::Arc, task::Waker, time::Duration};

use super::limit::IntoLimit;
use super::permits::{Permits, checked_limit};
use super::request::{PermitRequest, Reserve};
use super::source::PermitSource;
use crate::clock::Tick;
use crate::error::{ConfigError, StoreError, expect_valid};
use crate::layer::OnStoreError;
use crate::queue::TOLD;
use crate::store::{
    cas::{Bell, CasStore, LeaseHolder, LeasePlan, LeaseView, Leases},
    remote::{RemoteKey, check_name},
};
use crate::sync::{Mutex, lock};

/// The number of requests of one key in flight on all machines of a fleet.
///
/// Machines that use the same name in the same store share their permits; see the [module](self).
///
/// ```
/// use axum::{Router, body::Body, extract::Request, routing::get};
/// use tower::ServiceExt;
/// use tower_throttle::HeaderKey;
/// use tower_throttle::concurrency::{ConcurrencyLimitLayer, fleet::FleetLimit};
/// use tower_throttle::store::cas::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// // In production a `Redis`, a `PostgreSql` or a `Cassandra`.
/// let store = MemoryStore::new();
/// // Two machines.
/// let [a, b] = [(); 2].map(|()| -> Router {
///     let limit = FleetLimit::new(store.clone(), "exports", 1);
///     let limit = ConcurrencyLimitLayer::new(HeaderKey::new("x-tenant"), limit);
///     Router::new().route("/", get(async || "data").layer(limit))
/// });
/// let request = || Request::get("/").header("x-tenant", "acme").body(Body::empty()).unwrap();
/// let first = a.clone().oneshot(request()).await.unwrap();
/// let second = b.clone().oneshot(request()).await.unwrap();
/// assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 429));
/// # }
/// ```
#[derive(Clone)]
#[must_use = "it does nothing until it is given to a layer"]
pub struct FleetLimit<S> {
    store: S,
    name: String,
    limit: u32,
    life: Duration,
    deadline: Duration,
}

impl<S: CasStore> FleetLimit<S> {
    /// At most `limit` requests of one key are in flight on all machines that use this name in this store.
    ///
    /// A machine with another number admits requests as long as fewer than its own number are in flight.
    ///
    /// # Panics
    /// If `limit` is 0, or the name is not 1 to 64 letters, digits and any of `. _ -`.
    #[track_caller]
    pub fn new(store: S, name: &str, limit: u32) -> Self {
        expect_valid(checked_limit(limit));
        expect_valid(check_name("name", name));
        Self {
            store,
            name: name.to_owned(),
            limit,
            life: Duration::from_secs(10),
            deadline: Duration::from_millis(100),
        }
    }

    /// How long permits are kept for a machine that does not renew them; 10 s unless set. Machines may differ.
    ///
    /// A shorter life frees the permits of a crashed machine sooner. A longer one lets a machine be without the store
    /// for longer.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::concurrency::fleet::FleetLimit;
    /// use tower_throttle::store::cas::MemoryStore;
    ///
    /// let limit = FleetLimit::new(MemoryStore::new(), "exports", 10).life(Duration::from_secs(30));
    /// # drop(limit);
    /// ```
    ///
    /// # Panics
    /// If it is not from 1 s to a day.
    #[track_caller]
    pub fn life(mut self, life: Duration) -> Self {
        if life < Duration::from_secs(1) || life > Duration::from_secs(86_400) {
            let allowed = "a time from 1 s to a day";
            let given = format!("{life:?}");
            expect_valid(Err::<(), _>(ConfigError::out_of_range(
                "life", given, allowed,
            )));
        }
        self.life = life;
        self
    }

    /// How long a request waits for a reply of the store; 100 ms unless set, and at most a tenth of a
    /// [life](Self::life).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::concurrency::fleet::FleetLimit;
    /// use tower_throttle::store::cas::MemoryStore;
    ///
    /// // A lightweight transaction of Cassandra takes longer.
    /// let limit = FleetLimit::new(MemoryStore::new(), "exports", 10).deadline(Duration::from_millis(500));
    /// # drop(limit);
    /// ```
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }
}

impl<S: CasStore> IntoLimit for FleetLimit<S> {
    type Source = Fleet<S>;

    fn into_limit(self) -> (Permits, Fleet<S>) {
        let deadline = self.deadline.min(self.life / 10);
        let leases = Leases::new(self.store, &self.name, self.life, deadline);
        let fleet = Fleet {
            leases: Arc::new(leases),
            last_error: Arc::default(),
        };
        (Permits::new(self.limit.into(), true), fleet)
    }
}

/// The permits are in the store of a fleet. A part of the name of a layer with a [`FleetLimit`]:
///
/// ```
/// use tower_throttle::HeaderKey;
/// use tower_throttle::concurrency::{ConcurrencyLimitLayer, UntilBodyEnds, fleet::{Fleet, FleetLimit}};
/// use tower_throttle::{respond::Responder, store::cas::MemoryStore};
///
/// type Exports = ConcurrencyLimitLayer<HeaderKey, Responder, UntilBodyEnds, Fleet<MemoryStore>>;
///
/// let limit = FleetLimit::new(MemoryStore::new(), "exports", 10);
/// let exports: Exports = ConcurrencyLimitLayer::new(HeaderKey::new("x-tenant"), limit);
/// # drop(exports);
/// ```
pub struct Fleet<S: CasStore> {
    leases: Arc<Leases<S>>,
    last_error: Arc<Mutex<Option<StoreError>>>,
}

/// The permits of one key on this machine.
struct OfKey {
    permits: Arc<Permits>,
    id: u64,
    last_error: Arc<Mutex<Option<StoreError>>>,
}

impl<K: RemoteKey, S: CasStore> PermitSource<K> for Fleet<S> {
    const ASKS: bool = true;

    fn ask(
        &self,
        key: &K,
        permits: &Arc<Permits>,
        request: PermitRequest,
        queue: (u32, Reserve),
    ) -> Result<(), StoreError> {
        let runtime = self.leases.runtime()?;
        let mut started = None;
        permits.table.ask(request.id, queue, || {
            let bell = Arc::<Bell>::default();
            Waker::from(Arc::clone(started.insert(bell)))
        });
        // Not under the lock: a runtime that shuts down drops the task at once.
        if let Some(bell) = started {
            let holder = OfKey {
                permits: Arc::clone(permits),
                id: request.id,
                last_error: Arc::clone(&self.last_error),
            };
            let name = self.leases.name_of(key);
            runtime.spawn(self.leases.keep(name, bell, holder));
        }
        Ok(())
    }

    fn failure(&self) -> (Duration, StoreError) {
        let last = lock(&self.last_error).clone();
        let error = last.unwrap_or_else(Leases::<S>::stopped);
        (self.leases.deadline(), error)
    }
}

impl LeaseHolder for OfKey {
    fn plan(&self, view: &LeaseView, is_current: bool) -> LeasePlan {
        let Permits { table, lines, .. } = &*self.permits;
        let mut plan = LeasePlan::default();
        lines.keep_first(self.id, Err(Some(TOLD)), |line| {
            let most;
            (plan, most) = table.plan_lease(self.id, line, view, is_current);
            most
        });
        plan
    }

    fn confirm(&self, plan: &LeasePlan, others: u64, valid_until: Tick) {
        let Permits { table, lines, .. } = &*self.permits;
        table.confirm_lease(self.id, plan, others, valid_until);
        lines.tell(self.id);
    }

    fn fail(&self, error: Option<StoreError>) {
        let Permits { table, lines, .. } = &*self.permits;
        let is_over = error.is_none();
        *lock(&self.last_error) = error;
        lines.keep_first(self.id, Err(None), |_| {
            if is_over {
                table.end_lease(self.id, true);
            }
            0
        });
    }

    fn end(&self) -> bool {
        let Permits { table, lines, .. } = &*self.permits;
        let mut is_over = false;
        // With the lock of the line: a request that joins it later starts another task.
        lines.keep_first(self.id, Err(None), |line| {
            is_over = line.len() == 0 && table.end_lease(self.id, false);
            usize::MAX
        });
        is_over
    }
}

impl<K, R, H, S: CasStore> super::ConcurrencyLimitLayer<K, R, H, Fleet<S>> {
    /// Denies requests while the store of the permits cannot be asked. Unless set they pass, unlimited.
    ///
    /// ```
    /// use tower_throttle::Global;
    /// use tower_throttle::concurrency::{ConcurrencyLimitLayer, fleet::FleetLimit};
    /// use tower_throttle::store::cas::MemoryStore;
    ///
    /// let limit = FleetLimit::new(MemoryStore::new(), "exports", 10);
    /// let layer = ConcurrencyLimitLayer::new(Global, limit).deny_on_store_error();
    /// # drop(layer);
    /// ```
    pub fn deny_on_store_error(self) -> Self {
        self.with_gate(|gate| gate.options.on_store_error = OnStoreError::Deny)
    }
}

/// Manual impl: derive would require `S: Clone`.
impl<S: CasStore> Clone for Fleet<S> {
    fn clone(&self) -> Self {
        Self {
            leases: Arc::clone(&self.leases),
            last_error: Arc::clone(&self.last_error),
        }
    }
}

/// Manual impl: the store may hold a password.
impl<S: CasStore> fmt::Debug for Fleet<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").finish_non_exhaustive()
    }
}

/// Manual impl: the store may hold a password.
impl<S> fmt::Debug for FleetLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetLimit")
            .field("name", &self.name)
            .field("limit", &self.limit)
            .field("life", &self.life)
            .finish_non_exhaustive()
    }
}
