//! Reading and changing a layer's limits at run time.

use std::{
    fmt,
    hash::{BuildHasher, Hash, Hasher},
    marker::PhantomData,
    sync::Arc,
    time::Duration,
};

use super::and::{Part, QueuePart};
use super::keyed::single_quota;
use super::state::{Shared, State};
use super::{And, Counts, KeyPair, KeyUpdate, LimitLayer, Limiting, Tiers};
use crate::algorithm::{Inherit, Words};
use crate::backend::{Backend, Bans, IntoBackend, Op};
use crate::clock::Clock;
use crate::decision::Decision;
use crate::error::ConfigError;
#[cfg(feature = "_remote")]
use crate::error::StoreError;
use crate::key::{KeyExtractor, KeyRef, KeyType};
use crate::queue;
use crate::quota::Quota;
use crate::receipt::Receipt;
use crate::store::local::{Local, Stats};
#[cfg(feature = "_remote")]
use crate::store::remote::StoreLimiter;

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
    limiter: Arc<L>,
    shared: Arc<Shared>,
    /// The way from the limiter of the layer to this one, which is a part of it.
    path: Vec<Step>,
    keys: PhantomData<fn(&K)>,
}

/// A step from a limiter to one of its parts.
#[derive(Clone)]
enum Step {
    Part(Arc<QueuePart>, Part),
    /// The index of a tier.
    Tier(usize),
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
        Handle::new(self.gate().state())
    }

    /// A handle of its limits, for requests of type `Req`: `layer.handle_for::<Request>()`.
    pub fn handle_for<Req>(&self) -> Handle<K::Key, G::Limiter>
    where
        K: KeyExtractor<Req>,
    {
        Handle::new(self.gate().state())
    }
}

impl<K, L> Handle<K, L> {
    fn new(state: &State<L>) -> Self {
        Self {
            limiter: Arc::clone(&state.backend),
            shared: Arc::clone(state.shared()),
            path: Vec::new(),
            keys: PhantomData,
        }
    }

    /// The handle of a part of this limit.
    fn part<Q, P>(&self, limiter: &Arc<P>, step: Step) -> Handle<Q, P> {
        let mut part = self.of_same(Arc::clone(limiter));
        part.path.push(step);
        part
    }

    /// The handle of the same limit, which `limiter` decides.
    pub(crate) fn of_same<Q, P>(&self, limiter: Arc<P>) -> Handle<Q, P> {
        Handle {
            limiter,
            shared: Arc::clone(&self.shared),
            path: self.path.clone(),
            keys: PhantomData,
        }
    }

    /// Whether requests queue for this limit, so that the keys of its lines are its keys.
    fn is_queue(&self) -> bool {
        self.path.iter().all(|step| match step {
            Step::Part(queue, part) => queue.get() == Some(*part),
            Step::Tier(_) => true,
        })
    }

    /// The decision that a request of `cost` would get now. Takes nothing.
    pub fn peek<Q>(&self, key: &Q, cost: u64) -> L::Future
    where
        Q: KeyRef<K> + ?Sized,
        L: Backend<Q>,
    {
        self.limiter.apply(key, Op::Peek(cost))
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
        KeyUpdate::start(self.limiter.apply(key, Op::Reset))
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
        KeyUpdate::start(self.limiter.apply(key, Op::Charge(cost)))
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
        let refund = || KeyUpdate::start(self.limiter.apply(key, Op::Refund(cost, Receipt::NOW)));
        if cost == 0 || !self.shared.lines.has_waiters() || !self.is_queue() {
            return refund();
        }
        // The line and a limit in this process change under the same lock.
        let mut line = self
            .shared
            .lines
            .lock_key(&QueueOf(&self.path, key, &*self.limiter));
        let _ = line.apply_refund(cost, queue::now(), || single_quota(&self.limiter.quotas()));
        let refunding = refund();
        line.advance_epoch();
        refunding
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
        KeyUpdate::start(self.limiter.apply(key, Op::Ban(length)))
    }

    /// Ends the block of `key` and forgets its failures and earlier blocks, as
    /// [`reset`](Self::reset) does.
    pub fn pardon<Q>(&self, key: &Q) -> KeyUpdate<L::Future>
    where
        Q: KeyRef<K> + ?Sized,
        L: Backend<Q> + Bans,
    {
        self.reset(key)
    }

    /// How many requests were admitted, denied, queued, and so on, so far.
    pub fn counts(&self) -> Counts {
        self.shared.counts.read()
    }

    /// The backend itself.
    ///
    /// After a change of its quotas call [`refresh_policies`](Self::refresh_policies). Queued
    /// requests do not see a change made here and keep their turns;
    /// [`set_quota`](Handle::set_quota) reschedules them.
    pub fn backend(&self) -> &L {
        &self.limiter
    }

    /// Makes response headers state the quotas that the backend has now.
    pub fn refresh_policies(&self) {
        self.shared.refresh_policies();
    }
}

impl<K, L: IntoBackend> Handle<K, L> {
    /// How many requests wait for their turn now.
    pub fn waiting(&self) -> u64 {
        self.shared.lines.waiting()
    }
}

impl<A, B, L1, L2> Handle<KeyPair<A, B>, And<L1, L2>> {
    /// The first limit of a layer with limits by [several keys](crate::RateLimitLayer::and).
    ///
    /// Of three limits, `a.and(..b).and(..c)`, they are `first().first()`, `first().second()` and
    /// `second()`.
    pub fn first(&self) -> Handle<A, L1> {
        let (first, _, queue) = self.limiter.parts();
        self.part(first, Step::Part(Arc::clone(queue), Part::First))
    }

    /// The second limit of a layer with limits by [several keys](crate::RateLimitLayer::and).
    pub fn second(&self) -> Handle<B, L2> {
        let (_, second, queue) = self.limiter.parts();
        self.part(second, Step::Part(Arc::clone(queue), Part::Second))
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
    pub fn tier(&self, tier: &T) -> Handle<K, L> {
        let (index, limiter) = self.limiter.indexed(tier);
        self.part(limiter, Step::Tier(index))
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
        self.limiter.peek_n(key, cost)
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
        self.limiter.stats()
    }

    /// How many keys are blocked now; see [`Local::blocked`].
    pub fn blocked(&self) -> usize
    where
        A: Bans,
    {
        self.limiter.blocked()
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
        let limiter = &*self.limiter;
        self.shared.lines.reschedule(queue::now(), || {
            let before = limiter.quota();
            limiter.set_quota(quota)?;
            // All lines are rescheduled, and those of one tier cannot be told from the others.
            let is_tier = self.path.iter().any(|step| matches!(step, Step::Tier(_)));
            let reschedules = self.is_queue() && !is_tier && limiter.replans_line();
            Ok(reschedules.then_some((before, quota)))
        })?;
        self.shared.refresh_policies();
        Ok(())
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
        self.shared.lines.reschedule(queue::now(), || {
            self.limiter
                .set_algorithm(algorithm.into(), Inherit::AsIs)?;
            Ok::<_, ConfigError>(None)
        })?;
        self.shared.refresh_policies();
        Ok(())
    }
}

#[cfg(feature = "policies")]
impl<K, A: Words, C: Clock, S: BuildHasher> Handle<K, Local<A, C, S>> {
    /// Changes the algorithm; the units that were used stay used. `quota` is the new quota if that
    /// changes, and queued requests go at its pace.
    pub(crate) fn replace_algorithm(
        &self,
        algorithm: A,
        quota: Option<Quota>,
    ) -> Result<(), ConfigError> {
        let limiter = &*self.limiter;
        self.shared.lines.reschedule(queue::now(), || {
            let before = limiter.quota();
            limiter.set_algorithm(algorithm, Inherit::Additive)?;
            let quota = quota.filter(|_| limiter.replans_line());
            Ok::<_, ConfigError>(quota.map(|quota| (before, quota)))
        })?;
        self.shared.refresh_policies();
        Ok(())
    }
}

#[cfg(feature = "_remote")]
impl<K, L: StoreLimiter> Handle<K, L> {
    /// Changes the quota for all keys and for the whole fleet; see [`StoreLimiter::set_quota`].
    ///
    /// Response headers of this process state the new quota from now on; those of another process
    /// do so after a call of [`refresh_policies`](Self::refresh_policies) there.
    ///
    /// # Errors
    /// See [`StoreLimiter::set_quota`].
    pub async fn set_quota(&self, quota: Quota) -> Result<(), StoreError> {
        self.limiter.set_quota(quota).await?;
        self.shared.refresh_policies();
        Ok(())
    }
}

/// Identifies the queue of a key of one limit, as the layer's backend does in
/// [`Backend::hash_queue`].
struct QueueOf<'a, K: ?Sized, L>(&'a [Step], &'a K, &'a L);

impl<K: Hash + ?Sized, L: Backend<K>> Hash for QueueOf<'_, K, L> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self(path, key, backend) = self;
        for step in *path {
            if let Step::Tier(index) = step {
                state.write_usize(*index);
            }
        }
        backend.hash_queue(key, state);
    }
}

/// Manual impl: derive would require `K: Clone` and `L: Clone`.
impl<K, L> Clone for Handle<K, L> {
    fn clone(&self) -> Self {
        self.of_same(Arc::clone(&self.limiter))
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
