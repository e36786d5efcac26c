//! Reading and changing a layer's limits at run time.

use std::{
    fmt,
    future::Future,
    hash::Hash,
    io::{self, Read, Write},
    marker::PhantomData,
    sync::Arc,
};

use super::signals::{set_gauges, set_losses};
use super::state::State;
use super::{Counts, KeyPair, LimitLayer, Limiting};
use crate::algorithm::{Algorithm, IntoAlgorithm};
use crate::backend::{Backend, IntoBackend, Op};
use crate::clock::Clock;
use crate::decision::Decision;
use crate::error::{ConfigError, StoreError};
use crate::key::{KeyRef, KeyType};
use crate::quota::Quota;
use crate::receipt::Receipt;
use crate::saved::SaveState;
use crate::store::local::Local;

/// Reads and changes a layer's limits while requests are served.
///
/// `K` is the layer's key type, `L` its backend. Every method that takes a key takes a `&K`, or what
/// can be borrowed from one: a `&str` where keys are `String`s. A key of another type does not
/// compile.
///
/// A change to a key is done when its future is ready. With limits in this process it is done when the call returns.
///
/// A handle stays connected to the layer, its clones and its services, wherever they are moved.
/// Clones are handles of the same limits.
///
/// ```
/// use axum::{Router, routing::get};
/// use tower_throttle::{ClientIp, FixedWindow, Quota, RateLimitLayer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_throttle::StoreError> {
/// let clients = ClientIp::peer();
/// let layer = RateLimitLayer::new(clients.clone(), FixedWindow::new(Quota::per_day(100)));
/// let handle = layer.handle();
/// let app: Router = Router::new().route("/", get(|| async {})).layer(layer);
///
/// let client = clients.key([192, 0, 2, 7].into());
/// handle.charge(&client, 30).await?;
/// assert_eq!(handle.peek(&client, 1).await?.remaining(), 70);
/// handle.reset(&client).await?;
/// # Ok(())
/// # }
/// ```
pub struct Handle<K, L> {
    state: Arc<State<L>>,
    keys: PhantomData<fn(&K)>,
}

impl<K, G: Limiting, R> LimitLayer<K, G, R> {
    /// A handle of its limits.
    ///
    /// An extractor of your own implements [`KeyType`] for it.
    pub fn handle<M>(&self) -> Handle<K::Key, G::Limiter>
    where
        K: KeyType<M>,
    {
        Handle::new(self.gate().state())
    }
}

impl<K, L> Handle<K, L> {
    pub(crate) fn new(state: &Arc<State<L>>) -> Self {
        let (state, keys) = (Arc::clone(state), PhantomData);
        Self { state, keys }
    }

    pub(crate) const fn state(&self) -> &Arc<State<L>> {
        &self.state
    }

    /// The decision that a request of `cost` would get now. Takes nothing.
    pub fn peek<Q>(&self, key: &Q, cost: u64) -> L::Future
    where
        Q: KeyRef<K> + ?Sized,
        L: Backend<Q>,
    {
        self.state.backend.apply(key, Op::Peek(cost))
    }

    /// Forgets what `key` has used, its failures and its block. Requests that wait go on as far as the limit then
    /// admits them.
    pub fn reset<Q>(
        &self,
        key: &Q,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + use<Q, K, L>
    where
        Q: KeyRef<K> + Hash + ?Sized,
        L: Backend<Q>,
    {
        self.give(key, Op::Reset)
    }

    /// Applies an operation after which requests that wait may go on.
    fn give<Q>(
        &self,
        key: &Q,
        op: Op,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + use<Q, K, L>
    where
        Q: KeyRef<K> + Hash + ?Sized,
        L: Backend<Q>,
    {
        let applying = self.state.backend.apply(key, op);
        self.state.tell(key);
        done(applying)
    }

    /// Counts `cost` as used by `key`, even if that is more than it has left: a penalty, or what was
    /// used elsewhere.
    ///
    /// Requests that wait in a line wait for longer then.
    ///
    /// ```
    /// use tower_throttle::{HeaderKey, Quota, RateLimitLayer, TokenBucket};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_throttle::StoreError> {
    /// let keys = HeaderKey::new("x-api-key");
    /// let layer = RateLimitLayer::new(keys, TokenBucket::new(Quota::per_hour(10)));
    /// let (handle, key) = (layer.handle(), HeaderKey::key("secret"));
    /// handle.charge(&key, 7).await?;
    /// assert_eq!(handle.peek_now(&key, 1).remaining(), 3);
    /// handle.refund(&key, 2).await?;
    /// assert_eq!(handle.peek_now(&key, 1).remaining(), 5);
    /// handle.reset(&key).await?;
    /// assert_eq!(handle.peek_now(&key, 1).remaining(), 10);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "penalize")]
    pub fn charge<Q>(
        &self,
        key: &Q,
        cost: u64,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + use<Q, K, L>
    where
        Q: KeyRef<K> + ?Sized,
        L: Backend<Q>,
    {
        done(self.state.backend.apply(key, Op::Charge(cost)))
    }

    /// Gives `cost` back to `key`, at most what it has used, as if it had been taken just now.
    ///
    /// Requests that wait go on as far as the limit then admits them.
    pub fn refund<Q>(
        &self,
        key: &Q,
        cost: u64,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + use<Q, K, L>
    where
        Q: KeyRef<K> + Hash + ?Sized,
        L: Backend<Q>,
    {
        self.give(key, Op::Refund(cost, Receipt::NOW))
    }

    /// How many requests were admitted, denied, queued, and so on, so far.
    pub fn counts(&self) -> Counts {
        self.state.counts.read()
    }

    /// The backend itself.
    ///
    /// Change its quota by [`set_quota`](Handle::set_quota): of a change made here neither response headers nor the
    /// first request in line know.
    pub fn backend(&self) -> &L {
        &self.state.backend
    }
}

impl<K, L: IntoBackend> Handle<K, L> {
    /// Sets the gauges of this limit, and the counter of what its table lost, under the name that the layer had when
    /// the handle was made. It has no effect without the feature `metrics`.
    ///
    /// Call it before the metrics are read, as in the handler that returns them to Prometheus, or from
    /// time to time. Requests do not do it. It reads all states of a table in memory. The gauges are
    /// `tower_throttle_waiting`, and of a limit in this process `tower_throttle_table_keys`,
    /// `tower_throttle_table_capacity` and `tower_throttle_largest_use_percent`. The counter is
    /// `tower_throttle_overflow_total`.
    ///
    /// ```
    /// use axum::{Router, routing::get};
    /// use tower_throttle::{ClientIp, Quota, RateLimitLayer, TokenBucket};
    ///
    /// let search = TokenBucket::new(Quota::per_second(10));
    /// let search = RateLimitLayer::new(ClientIp::peer(), search).name("search");
    /// let handle = search.handle();
    /// let app: Router = Router::new()
    ///     .route("/search", get(async || "found").layer(search))
    ///     .route("/metrics", get(async move || {
    ///         handle.record_gauges();
    ///         // And render all metrics, as by `PrometheusHandle::render`.
    ///     }));
    /// ```
    pub fn record_gauges(&self)
    where
        L: Backend<K>,
    {
        let mut gauges = vec![("tower_throttle_waiting", self.waiting())];
        let stats = self.state.backend.stats();
        if stats.capacity > 0 {
            gauges.extend([
                ("tower_throttle_table_keys", stats.live as u64),
                ("tower_throttle_table_capacity", stats.capacity as u64),
                (
                    "tower_throttle_largest_use_percent",
                    stats.largest_use_percent,
                ),
            ]);
        }
        set_gauges(self.state.name(), &gauges);
        set_losses(self.state.name(), stats);
    }

    /// How many requests wait for their turn now.
    pub fn waiting(&self) -> u64 {
        self.state.lines.all_waiting()
    }
}

impl<KA, KB, A: Limiting, B: Limiting> Handle<KeyPair<KA, KB>, (A, B)> {
    /// The first limit of a layer with [several limits](LimitLayer::and).
    ///
    /// Of three limits, `a.and(b).and(c)`, they are `first().first()`, `first().second()` and
    /// `second()`.
    pub fn first(&self) -> Handle<KA, A::Limiter> {
        Handle::new(self.state.backend.0.state())
    }

    /// The second limit of a layer with [several limits](LimitLayer::and).
    pub fn second(&self) -> Handle<KB, B::Limiter> {
        Handle::new(self.state.backend.1.state())
    }
}

impl<K, A: Algorithm, C: Clock> Handle<K, Local<A, C>> {
    /// The same as [`peek`](Self::peek), without a future: limits in this process decide at once.
    ///
    /// ```
    /// use tower_throttle::{FixedWindow, Quota, RateLimitLayer};
    ///
    /// let per_user = RateLimitLayer::new(|user: &String| user.clone(), FixedWindow::new(Quota::per_day(100)));
    /// assert_eq!(per_user.handle().peek_now("alice", 1).remaining(), 100);
    /// ```
    pub fn peek_now<Q>(&self, key: &Q, cost: u64) -> Decision
    where
        Q: KeyRef<K> + Hash + ?Sized,
    {
        self.state.backend.peek(key, cost)
    }

    /// Changes the quota for all keys. What they have used stays used, and response headers state
    /// the new quota from now on.
    ///
    /// Requests that wait keep their position and go at the new pace. Another layer that has a clone of the same table
    /// decides by the new quota, but its headers state the old one: clone the layer, not the table.
    ///
    /// ```
    /// use tower_throttle::{FixedWindow, Global, Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new(Global, FixedWindow::new(Quota::per_day(100)));
    /// let handle = layer.handle();
    /// handle.set_quota(Quota::per_day(200))?;
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If the algorithm does not have a single quota, as a set of several limits.
    pub fn set_quota(&self, quota: Quota) -> Result<(), ConfigError> {
        self.change(|limiter| limiter.set_quota(quota))
    }

    /// Changes the algorithm for all keys, to one of the same type with other settings, or any
    /// algorithm if the limit is an [`AnyAlgorithm`](crate::AnyAlgorithm).
    ///
    /// What keys have used stays used; after a change of type it is charged to a fresh state. Requests that wait ask the new
    /// algorithm. Response headers state the new quotas from now on.
    ///
    /// ```
    /// use tower_throttle::{AnyAlgorithm, FixedWindow, Global, Quota, RateLimitLayer, TokenBucket};
    ///
    /// let configured = AnyAlgorithm::new(TokenBucket::new(Quota::per_second(10)));
    /// let layer = RateLimitLayer::new(Global, configured);
    /// let handle = layer.handle();
    /// handle.set_algorithm(AnyAlgorithm::new(FixedWindow::new(Quota::per_day(200))))?;
    /// assert_eq!(handle.peek_now(&(), 0).remaining(), 200);
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If a setting is invalid or has no effect, or an [`AnyAlgorithm`](crate::AnyAlgorithm) of this crate would become
    /// one of your own.
    pub fn set_algorithm(
        &self,
        algorithm: impl IntoAlgorithm<Algorithm = A>,
    ) -> Result<(), ConfigError> {
        self.change(|limiter| limiter.set_algorithm(algorithm))
    }

    /// Changes the limit. The requests in line then ask it.
    fn change(
        &self,
        change: impl FnOnce(&Local<A, C>) -> Result<(), ConfigError>,
    ) -> Result<(), ConfigError> {
        change(&self.state.backend)?;
        self.state.changed();
        Ok(())
    }
}

impl<K, A: Algorithm, C: Clock> SaveState for Handle<K, Local<A, C>> {
    fn save(&self, writer: &mut dyn Write) -> io::Result<()> {
        SaveState::save(&*self.state.backend, writer)
    }

    fn load(&self, reader: &mut dyn Read) -> io::Result<()> {
        SaveState::load(&*self.state.backend, reader)
    }
}

/// Manual impl: derive would require `K: Clone` and `L: Clone`.
impl<K, L> Clone for Handle<K, L> {
    fn clone(&self) -> Self {
        Self::new(&self.state)
    }
}

/// Manual impl: derive would require `L: Debug`.
impl<K, L> fmt::Debug for Handle<K, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

/// Without the figures after a change.
async fn done(
    applying: impl Future<Output = Result<Decision, StoreError>>,
) -> Result<(), StoreError> {
    applying.await.map(drop)
}
