//! Reading and changing a layer's limits at run time.

use std::{
    fmt,
    hash::{BuildHasher, Hash},
    marker::PhantomData,
    sync::Arc,
    time::Duration,
};

use super::{
    And, Counts, KeyPair, KeyUpdate, LimitHandle, LimitLayer, Limiting, Tiers, state::State,
};
use crate::algorithm::Words;
use crate::backend::{Backend, Bans, IntoBackend};
use crate::clock::Clock;
use crate::decision::Decision;
use crate::error::ConfigError;
#[cfg(any(feature = "cas", feature = "redis"))]
use crate::error::StoreError;
use crate::key::{KeyExtractor, KeyRef, KeyType};
use crate::quota::Quota;
use crate::store::local::{Local, Stats};
#[cfg(feature = "redis")]
use crate::store::redis::{RedisLimiter, Scripted};
#[cfg(feature = "cas")]
use crate::store::{
    cas::{Cas, CasStore},
    fleet::{FleetLimiter, Mode, Shaped},
};

/// Reads and changes a layer's limits while requests are served.
///
/// `K` is the layer's key type, `L` its backend. Every method that takes a key takes a `&K`, or what
/// can be borrowed from one: a `&str` where keys are `String`s. A key of another type does not
/// compile.
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
/// handle.penalise(&client, 30);
/// assert_eq!(handle.peek(&client, 1).await?.remaining(), 70);
/// handle.reset(&client);
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
    /// For an extractor of your own that does not implement [`KeyType`], call
    /// [`handle_for`](Self::handle_for).
    pub fn handle<M>(&self) -> Handle<K::Key, G::Limiter>
    where
        K: KeyType<M>,
    {
        Handle::new(Arc::clone(self.gate().state()))
    }

    /// A handle of its limits, for requests of type `Req`: `layer.handle_for::<Request>()`.
    pub fn handle_for<Req>(&self) -> Handle<K::Key, G::Limiter>
    where
        K: KeyExtractor<Req>,
    {
        Handle::new(Arc::clone(self.gate().state()))
    }
}

impl<K, L> Handle<K, L> {
    const fn new(state: Arc<State<L>>) -> Self {
        Self {
            state,
            keys: PhantomData,
        }
    }

    /// Everything that concerns the limit alone.
    fn part(&self) -> LimitHandle<'_, K, L> {
        let state = &self.state;
        LimitHandle::new(&state.backend, state.shared())
    }

    /// The decision that a request of `cost` would get now. Takes nothing.
    pub fn peek<Q>(&self, key: &Q, cost: u64) -> L::Future
    where
        Q: KeyRef<K> + ?Sized,
        L: Backend<Q>,
    {
        self.part().peek(key, cost)
    }

    /// Forgets what `key` has used.
    ///
    /// Requests that wait keep their turns. Earlier turns that the limit grants to new requests
    /// before that go to the waiting ones, in order.
    pub fn reset<Q>(&self, key: &Q) -> KeyUpdate<L::Future>
    where
        Q: KeyRef<K> + ?Sized,
        L: Backend<Q>,
    {
        self.part().reset(key)
    }

    /// Counts `cost` as used by `key`, even if that is more than it has left: a penalty, or what was
    /// used elsewhere.
    ///
    /// Requests that wait keep the turns they were promised; later ones wait longer.
    ///
    /// ```
    /// use tower_throttle::{HeaderKey, Quota, RateLimitLayer, TokenBucket};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_throttle::StoreError> {
    /// let keys = HeaderKey::new("x-api-key");
    /// let layer = RateLimitLayer::new(keys, TokenBucket::new(Quota::per_hour(10)));
    /// let (handle, key) = (layer.handle(), HeaderKey::key("secret"));
    /// handle.penalise(&key, 7).await?;
    /// assert_eq!(handle.peek_now(&key, 1).remaining(), 3);
    /// handle.refund(&key, 2).await?;
    /// assert_eq!(handle.peek_now(&key, 1).remaining(), 5);
    /// handle.reset(&key).await?;
    /// assert_eq!(handle.peek_now(&key, 1).remaining(), 10);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "penalize")]
    pub fn penalise<Q>(&self, key: &Q, cost: u64) -> KeyUpdate<L::Future>
    where
        Q: KeyRef<K> + ?Sized,
        L: Backend<Q>,
    {
        self.part().penalise(key, cost)
    }

    /// Gives `cost` back to `key`, at most what it has used, as if it had been taken just now.
    ///
    /// Requests that wait move up by what it is worth. With several limits whose worth cannot be
    /// told, they keep their turns; earlier turns that the limit grants to new requests go to the
    /// waiting ones, in order.
    pub fn refund<Q>(&self, key: &Q, cost: u64) -> KeyUpdate<L::Future>
    where
        Q: KeyRef<K> + Hash + ?Sized,
        L: Backend<Q>,
    {
        self.part().refund(key, cost)
    }

    /// Denies all requests of `key` for `length` from now on, or until its present block ends if that
    /// is later. Attempts that are under way do not change it when they end.
    ///
    /// With a [`Fallback`](crate::store::Fallback), only the backend that decides now bans the key.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{ClientIp, Lockout, Quota, RateLimitLayer};
    ///
    /// let clients = ClientIp::peer();
    /// let layer = RateLimitLayer::new(clients.clone(), Lockout::new(Quota::per_hour(5)));
    /// let handle = layer.handle();
    /// let client = clients.key([203, 0, 113, 9].into());
    /// handle.ban(&client, Duration::from_secs(3_600));
    /// assert_eq!(handle.blocked(), 1);
    /// assert!(handle.peek_now(&client, 1).is_denied());
    /// handle.pardon(&client);
    /// assert_eq!(handle.blocked(), 0);
    /// ```
    pub fn ban<Q>(&self, key: &Q, length: Duration) -> KeyUpdate<L::Future>
    where
        Q: KeyRef<K> + ?Sized,
        L: Backend<Q> + Bans,
    {
        self.part().ban(key, length)
    }

    /// Ends the block of `key` and forgets its failures and earlier blocks, as
    /// [`reset`](Self::reset) does.
    pub fn pardon<Q>(&self, key: &Q) -> KeyUpdate<L::Future>
    where
        Q: KeyRef<K> + ?Sized,
        L: Backend<Q> + Bans,
    {
        self.part().pardon(key)
    }

    /// How many requests were admitted, denied, queued, and so on, so far.
    pub fn counts(&self) -> Counts {
        self.state.counts.read()
    }

    /// The backend itself.
    ///
    /// After a change of its quotas call [`refresh_policies`](Self::refresh_policies). Queued
    /// requests do not see a change made here and keep their turns;
    /// [`set_quota`](Handle::set_quota) reschedules them.
    pub fn backend(&self) -> &L {
        &self.state.backend
    }

    /// Makes response headers state the quotas that the backend has now.
    pub fn refresh_policies(&self) {
        self.state.refresh_policies();
    }
}

impl<K, L: IntoBackend> Handle<K, L> {
    /// How many requests wait for their turn now.
    pub fn waiting(&self) -> u64 {
        self.state.lines.waiting()
    }
}

impl<A, B, L1, L2> Handle<KeyPair<A, B>, And<L1, L2>> {
    /// The first limit of a layer with limits by [several keys](crate::RateLimitLayer::and).
    ///
    /// Of three limits, `a.and(..b).and(..c)`, they are `first().first()`, `first().second()` and
    /// `second()`.
    pub fn first(&self) -> LimitHandle<'_, A, L1> {
        self.part().first()
    }

    /// The second limit of a layer with limits by [several keys](crate::RateLimitLayer::and).
    pub fn second(&self) -> LimitHandle<'_, B, L2> {
        self.part().second()
    }
}

impl<T: PartialEq, K, L> Handle<(T, K), Tiers<T, L>> {
    /// The limit of one of several [`Tiers`], or that of the unlisted tiers if `tier` is not listed.
    ///
    /// ```
    /// use axum::{Router, extract::Request, routing::get};
    /// use tower_throttle::{AnyAlgorithm, FixedWindow, Quota, RateLimitLayer, Tiers, TokenBucket};
    /// use tower_throttle::key::Key;
    ///
    /// #[derive(Clone, Copy, PartialEq, Eq, Hash)]
    /// enum Plan {
    ///     Free,
    ///     Pro,
    /// }
    ///
    /// impl Key for Plan {}
    ///
    /// fn customer(req: &Request) -> Option<(Plan, u64)> {
    ///     req.extensions().get().copied() // put there by authentication
    /// }
    ///
    /// let free = FixedWindow::new(Quota::per_day(100));
    /// let pro = TokenBucket::new(Quota::per_second(50));
    /// let limits = Tiers::new(AnyAlgorithm::from(free)).tier(Plan::Pro, AnyAlgorithm::from(pro));
    /// let layer = RateLimitLayer::new(customer, limits);
    /// let handle = layer.handle();
    /// let app: Router = Router::new().route("/", get(|| async {})).layer(layer);
    ///
    /// handle.tier(&Plan::Pro).set_algorithm(TokenBucket::new(Quota::per_second(80)))?;
    /// assert_eq!(handle.tier(&Plan::Pro).peek_now(&7, 0).remaining(), 80);
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn tier(&self, tier: &T) -> LimitHandle<'_, K, L> {
        self.part().tier(tier)
    }
}

impl<K, A: Words, C: Clock, S: BuildHasher> Handle<K, Local<A, C, S>> {
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
        self.part().peek_now(key, cost)
    }

    /// The size of the table of keys, and what it evicted or denied because it was full.
    ///
    /// ```
    /// use tower_throttle::{FixedWindow, Global, Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new(Global, FixedWindow::new(Quota::per_day(100)));
    /// assert_eq!(layer.handle().stats().evicted, 0);
    /// ```
    pub fn stats(&self) -> Stats {
        self.part().stats()
    }

    /// How many keys are blocked now; see [`Local::blocked`].
    pub fn blocked(&self) -> usize
    where
        A: Bans,
    {
        self.part().blocked()
    }

    /// Changes the quota for all keys. What they have used stays used, and response headers state
    /// the new quota from now on.
    ///
    /// Queued requests keep their position and go at the new pace; only in a
    /// [`WarmUp`](crate::WarmUp) do they keep their turns.
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
        self.part().set_quota(quota)
    }

    /// Changes the algorithm for all keys, to one of the same type with other settings, or any
    /// algorithm if the limit is an [`AnyAlgorithm`](crate::AnyAlgorithm).
    ///
    /// What keys have used stays used if the type is the same; after a change of type they begin
    /// afresh. Queued requests keep their turns. Response headers state the new quotas from now on.
    ///
    /// ```
    /// use tower_throttle::{AnyAlgorithm, FixedWindow, Global, Quota, RateLimitLayer, TokenBucket};
    ///
    /// let configured = AnyAlgorithm::from(TokenBucket::new(Quota::per_second(10)));
    /// let layer = RateLimitLayer::new(Global, configured);
    /// let handle = layer.handle();
    /// handle.set_algorithm(FixedWindow::new(Quota::per_day(200)))?;
    /// assert_eq!(handle.peek_now(&(), 0).remaining(), 200);
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// If the states of `algorithm` take more words than those of the first algorithm; see
    /// [`Local::set_algorithm`].
    pub fn set_algorithm(&self, algorithm: impl Into<A>) -> Result<(), ConfigError> {
        self.part().set_algorithm(algorithm)
    }
}

#[cfg(feature = "redis")]
impl<K, A: Scripted> Handle<K, RedisLimiter<A>> {
    /// Changes the quota for all keys and for the whole fleet: see [`RedisLimiter::set_quota`].
    ///
    /// Response headers of this process state the new quota from now on; those of another process
    /// do so after a call of [`refresh_policies`](Self::refresh_policies) there.
    ///
    /// # Errors
    /// See [`RedisLimiter::set_quota`].
    pub async fn set_quota(&self, quota: Quota) -> Result<(), StoreError> {
        self.part().set_quota(quota).await
    }
}

#[cfg(feature = "cas")]
impl<K, S: CasStore, A: crate::algorithm::Portable> Handle<K, Cas<S, A>> {
    /// Changes the quota for all keys and for the whole fleet: see [`Cas::set_quota`].
    ///
    /// Response headers of this process state the new quota from now on; those of another process
    /// do so after a call of [`refresh_policies`](Self::refresh_policies) there.
    ///
    /// # Errors
    /// See [`Cas::set_quota`].
    pub async fn set_quota(&self, quota: Quota) -> Result<(), StoreError> {
        self.part().set_quota(quota).await
    }
}

#[cfg(feature = "cas")]
impl<K, S: CasStore, A: Shaped, M: Mode> Handle<K, FleetLimiter<S, A, M>> {
    /// Changes the quota for all keys and for the whole fleet: see [`FleetLimiter::set_quota`].
    ///
    /// Response headers of this process state the new quota from now on; those of another process
    /// do so after a call of [`refresh_policies`](Self::refresh_policies) there.
    ///
    /// # Errors
    /// See [`FleetLimiter::set_quota`].
    pub async fn set_quota(&self, quota: Quota) -> Result<(), StoreError> {
        self.part().set_quota(quota).await
    }
}

/// Manual impl: derive would require `K: Clone` and `L: Clone`.
impl<K, L> Clone for Handle<K, L> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.state))
    }
}

/// Manual impl: derive would require `L: Debug`.
impl<K, L> fmt::Debug for Handle<K, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("name", &self.state.name())
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}
