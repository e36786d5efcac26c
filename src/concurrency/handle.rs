//! Reading and changing a limit on concurrency at run time.

use std::{fmt, hash::Hash, marker::PhantomData, sync::Arc};

use super::ConcurrencyLayer;
use super::state::{State, checked_limit};
use crate::error::ConfigError;
use crate::key::{KeyExtractor, KeyRef, KeyType};
use crate::layer::Counts;

/// Reads and changes the limit of a [`ConcurrencyLayer`] while requests are served.
///
/// `K` is the layer's key type. Every method that takes a key takes a `&K`, or what can be borrowed
/// from one. Clones are handles of the same limit.
///
/// ```
/// use tower_throttle::{ConfigError, concurrency::ConcurrencyLayer};
///
/// # fn main() -> Result<(), ConfigError> {
/// let layer = ConcurrencyLayer::new(|tenant: &String| tenant.clone(), 10);
/// let handle = layer.handle();
/// assert_eq!(handle.in_flight("acme"), 0);
/// handle.set_limit(20)?;
/// assert_eq!(handle.limit(), 20);
/// # Ok(())
/// # }
/// ```
pub struct ConcurrencyHandle<K> {
    state: Arc<State>,
    keys: PhantomData<fn(&K)>,
}

impl<K, R, H> ConcurrencyLayer<K, R, H> {
    /// A handle of its limit.
    ///
    /// For an extractor of your own that does not implement [`KeyType`], call
    /// [`handle_for`](Self::handle_for).
    pub fn handle<M>(&self) -> ConcurrencyHandle<K::Key>
    where
        K: KeyType<M>,
    {
        ConcurrencyHandle::new(Arc::clone(&self.state))
    }

    /// A handle of its limit, for requests of type `Req`: `layer.handle_for::<Request>()`.
    pub fn handle_for<Req>(&self) -> ConcurrencyHandle<K::Key>
    where
        K: KeyExtractor<Req>,
    {
        ConcurrencyHandle::new(Arc::clone(&self.state))
    }
}

impl<K> ConcurrencyHandle<K> {
    const fn new(state: Arc<State>) -> Self {
        Self {
            state,
            keys: PhantomData,
        }
    }

    /// The number of permits of `key` that are taken.
    pub fn in_flight<Q>(&self, key: &Q) -> u64
    where
        Q: KeyRef<K> + Hash + ?Sized,
    {
        let table = &self.state.table;
        table.look(table.key_id(key)).0
    }

    /// The number of keys with requests in flight. No other key takes up memory, except for an
    /// [adaptive](ConcurrencyLayer::new) limit of its own.
    pub fn keys(&self) -> usize {
        self.state.table.keys()
    }

    /// How many requests wait for a permit now, of all keys together.
    pub fn waiting(&self) -> u64 {
        self.state.table.waiting()
    }

    /// How many requests were admitted, denied, queued, and so on, so far. A request that waited and
    /// was denied in the end counts as both.
    pub fn counts(&self) -> Counts {
        self.state.counts.read()
    }

    /// How many requests of one key may be in flight now. If each key has its own
    /// [adaptive](ConcurrencyLayer::new) limit, that of a new key.
    pub fn limit(&self) -> u64 {
        self.state.table.limit()
    }

    /// How many requests of `key` may be in flight now.
    ///
    /// ```
    /// use tower_throttle::concurrency::{ConcurrencyLayer, Gradient2};
    ///
    /// let tenant = |tenant: &String| tenant.clone();
    /// let layer = ConcurrencyLayer::new(tenant, Gradient2::new().start_at(5));
    /// assert_eq!(layer.handle().limit_of("acme"), 5);
    /// ```
    pub fn limit_of<Q>(&self, key: &Q) -> u64
    where
        Q: KeyRef<K> + Hash + ?Sized,
    {
        let table = &self.state.table;
        table.look(table.key_id(key)).1
    }

    /// The number of keys whose own [adaptive](ConcurrencyLayer::new) limit is kept.
    ///
    /// ```
    /// use axum::{Router, body::Body, extract::Request, routing::get};
    /// use tower::ServiceExt;
    /// use tower_throttle::HeaderKey;
    /// use tower_throttle::concurrency::{ConcurrencyLayer, Gradient2};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let layer = ConcurrencyLayer::new(HeaderKey::new("x-tenant"), Gradient2::new());
    /// let handle = layer.handle();
    /// let app: Router = Router::new().route("/", get(|| async {})).layer(layer);
    /// for tenant in ["acme", "initech", "acme"] {
    ///     let request = Request::builder().header("x-tenant", tenant);
    ///     app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    /// }
    /// // Their limits are kept after the requests.
    /// assert_eq!(handle.kept_limits(), 2);
    /// # }
    /// ```
    pub fn kept_limits(&self) -> usize {
        self.state.table.kept_limits()
    }

    /// Changes the limit.
    ///
    /// A higher one lets waiting requests go on at once. A lower one ends no request: permits beyond
    /// it are not granted again once they are released.
    ///
    /// # Errors
    /// If `limit` is 0, or the limit is [adaptive](ConcurrencyLayer::adaptive). It stays as it was.
    ///
    /// ```
    /// use tower_throttle::{Global, concurrency::ConcurrencyLayer};
    ///
    /// let handle = ConcurrencyLayer::new(Global, 10).handle();
    /// handle.set_limit(25)?;
    /// assert!(handle.set_limit(0).is_err());
    /// assert_eq!(handle.limit(), 25);
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn set_limit(&self, limit: u32) -> Result<(), ConfigError> {
        if self.state.is_adaptive() {
            return Err(ConfigError::Unsupported {
                what: "set_limit on an adaptive limit",
                instead: "set its bounds with `between` when it is made",
            });
        }
        self.state.table.set_limit(checked_limit(limit)?);
        Ok(())
    }
}

/// Manual impl: derive would require `K: Clone`.
impl<K> Clone for ConcurrencyHandle<K> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.state))
    }
}

/// Manual impl: derive would require `K: Debug`.
impl<K> fmt::Debug for ConcurrencyHandle<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyHandle")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
