//! Reading and changing one limit.

use std::{
    fmt,
    hash::{BuildHasher, Hash, Hasher},
    marker::PhantomData,
    time::Duration,
};

use super::and::{Part, QueuePart};
use super::state::Shared;
use super::{And, KeyPair, KeyUpdate, Tiers, keyed::single_quota};
use crate::algorithm::{Inherit, Words};
use crate::backend::{Backend, Bans, Op};
use crate::clock::Clock;
use crate::decision::Decision;
use crate::error::ConfigError;
#[cfg(any(feature = "cas", feature = "redis"))]
use crate::error::StoreError;
use crate::key::KeyRef;
use crate::queue;
use crate::quota::Quota;
use crate::receipt::Receipt;
use crate::store::local::{Local, Stats};
#[cfg(feature = "redis")]
use crate::store::redis::{RedisLimiter, Scripted};
#[cfg(feature = "cas")]
use crate::store::{
    cas::{Cas, CasStore},
    fleet::{FleetLimiter, Mode, Shaped},
};

/// Reads and changes one limit of a layer that has several; made by [`Handle::first`] and
/// [`Handle::second`].
///
/// [`Handle::first`]: super::Handle::first
/// [`Handle::second`]: super::Handle::second
///
/// ```
/// use axum::{Router, routing::get};
/// use tower_throttle::{ClientIp, FixedWindow, Global, Quota, RateLimitLayer};
///
/// let clients = ClientIp::peer();
/// let layer = RateLimitLayer::new(clients.clone(), FixedWindow::new(Quota::per_day(100)))
///     .and(Global, FixedWindow::new(Quota::per_day(10_000)));
/// let handle = layer.handle();
/// let app: Router = Router::new().route("/", get(|| async {})).layer(layer);
///
/// let client = clients.key([192, 0, 2, 7].into());
/// handle.first().penalise(&client, 30);
/// assert_eq!(handle.first().peek_now(&client, 0).remaining(), 70);
/// assert_eq!(handle.second().peek_now(&(), 0).remaining(), 10_000);
/// ```
pub struct LimitHandle<'a, K, L> {
    backend: &'a L,
    shared: &'a Shared,
    path: Vec<Step<'a>>,
    keys: PhantomData<fn(&K)>,
}

/// A step from the layer's backend to one of its limits.
#[derive(Clone, Copy)]
enum Step<'a> {
    Part(&'a QueuePart, Part),
    /// The index of a tier.
    Tier(usize),
}

impl<'a, K, L> LimitHandle<'a, K, L> {
    pub(super) const fn new(backend: &'a L, shared: &'a Shared) -> Self {
        Self {
            backend,
            shared,
            path: Vec::new(),
            keys: PhantomData,
        }
    }

    fn limit<Q, P>(&self, backend: &'a P, step: Step<'a>) -> LimitHandle<'a, Q, P> {
        let mut path = self.path.clone();
        path.push(step);
        LimitHandle {
            backend,
            shared: self.shared,
            path,
            keys: PhantomData,
        }
    }

    /// See [`Handle::peek`](super::Handle::peek).
    pub fn peek<Q>(&self, key: &Q, cost: u64) -> L::Future
    where
        Q: KeyRef<K> + ?Sized,
        L: Backend<Q>,
    {
        self.backend.apply(key, Op::Peek(cost))
    }

    /// See [`Handle::reset`](super::Handle::reset).
    pub fn reset<Q>(&self, key: &Q) -> KeyUpdate<L::Future>
    where
        Q: KeyRef<K> + ?Sized,
        L: Backend<Q>,
    {
        KeyUpdate::start(self.backend.apply(key, Op::Reset))
    }

    /// See [`Handle::penalise`](super::Handle::penalise).
    #[doc(alias = "penalize")]
    pub fn penalise<Q>(&self, key: &Q, cost: u64) -> KeyUpdate<L::Future>
    where
        Q: KeyRef<K> + ?Sized,
        L: Backend<Q>,
    {
        KeyUpdate::start(self.backend.apply(key, Op::Charge(cost)))
    }

    /// See [`Handle::refund`](super::Handle::refund).
    pub fn refund<Q>(&self, key: &Q, cost: u64) -> KeyUpdate<L::Future>
    where
        Q: KeyRef<K> + Hash + ?Sized,
        L: Backend<Q>,
    {
        let refund = || KeyUpdate::start(self.backend.apply(key, Op::Refund(cost, Receipt::NOW)));
        if cost == 0 || !self.shared.lines.has_waiters() || !self.is_queue() {
            return refund();
        }
        // The line and a limit in this process change under the same lock.
        let mut line = self
            .shared
            .lines
            .lock_key(&QueueOf(&self.path, key, self.backend));
        let _ = line.apply_refund(cost, queue::now(), || single_quota(&self.backend.quotas()));
        let refunding = refund();
        line.advance_epoch();
        refunding
    }

    /// See [`Handle::ban`](super::Handle::ban).
    pub fn ban<Q>(&self, key: &Q, length: Duration) -> KeyUpdate<L::Future>
    where
        Q: KeyRef<K> + ?Sized,
        L: Backend<Q> + Bans,
    {
        KeyUpdate::start(self.backend.apply(key, Op::Ban(length)))
    }

    /// See [`Handle::pardon`](super::Handle::pardon).
    pub fn pardon<Q>(&self, key: &Q) -> KeyUpdate<L::Future>
    where
        Q: KeyRef<K> + ?Sized,
        L: Backend<Q> + Bans,
    {
        self.reset(key)
    }

    /// Whether requests queue for this limit, so that the keys of its lines are its keys.
    fn is_queue(&self) -> bool {
        self.path.iter().all(|step| match step {
            Step::Part(queue, part) => queue.get() == Some(*part),
            Step::Tier(_) => true,
        })
    }

    /// See [`Handle::backend`](super::Handle::backend).
    pub const fn backend(&self) -> &'a L {
        self.backend
    }
}

impl<'a, A, B, L1, L2> LimitHandle<'a, KeyPair<A, B>, And<L1, L2>> {
    /// The first limit of these.
    pub fn first(&self) -> LimitHandle<'a, A, L1> {
        let step = Step::Part(self.backend.queue_part(), Part::First);
        self.limit(self.backend.first(), step)
    }

    /// The second limit of these.
    pub fn second(&self) -> LimitHandle<'a, B, L2> {
        let step = Step::Part(self.backend.queue_part(), Part::Second);
        self.limit(self.backend.second(), step)
    }
}

impl<'a, T: PartialEq, K, L> LimitHandle<'a, (T, K), Tiers<T, L>> {
    /// The limit of `tier`, or that of the unlisted tiers if `tier` is not listed.
    pub fn tier(&self, tier: &T) -> LimitHandle<'a, K, L> {
        let (index, backend) = self.backend.indexed(tier);
        self.limit(backend, Step::Tier(index))
    }
}

impl<K, A: Words, C: Clock, S: BuildHasher> LimitHandle<'_, K, Local<A, C, S>> {
    /// See [`Handle::peek_now`](super::Handle::peek_now).
    pub fn peek_now<Q>(&self, key: &Q, cost: u64) -> Decision
    where
        Q: KeyRef<K> + Hash + ?Sized,
    {
        self.backend.peek_n(key, cost)
    }

    /// See [`Handle::stats`](super::Handle::stats).
    pub fn stats(&self) -> Stats {
        self.backend.stats()
    }

    /// See [`Handle::blocked`](super::Handle::blocked).
    pub fn blocked(&self) -> usize
    where
        A: Bans,
    {
        self.backend.blocked()
    }

    /// See [`Handle::set_quota`](super::Handle::set_quota).
    ///
    /// # Errors
    /// If the algorithm does not have a single quota, as a set of several limits.
    pub fn set_quota(&self, quota: Quota) -> Result<(), ConfigError> {
        let backend = self.backend;
        self.shared.lines.reschedule(queue::now(), || {
            let before = backend.quota();
            backend.set_quota(quota)?;
            // All lines are rescheduled, and those of one tier cannot be told from the others.
            let is_tier = self.path.iter().any(|step| matches!(step, Step::Tier(_)));
            let reschedules = self.is_queue() && !is_tier && backend.replans_line();
            Ok(reschedules.then_some((before, quota)))
        })?;
        self.shared.refresh_policies();
        Ok(())
    }

    /// See [`Handle::set_algorithm`](super::Handle::set_algorithm).
    ///
    /// # Errors
    /// If the states of `algorithm` take more words than those of the first algorithm; see
    /// [`Local::set_algorithm`].
    pub fn set_algorithm(&self, algorithm: impl Into<A>) -> Result<(), ConfigError> {
        self.shared.lines.reschedule(queue::now(), || {
            self.backend
                .set_algorithm(algorithm.into(), Inherit::AsIs)?;
            Ok::<_, ConfigError>(None)
        })?;
        self.shared.refresh_policies();
        Ok(())
    }
}

#[cfg(feature = "policies")]
impl<K, A: Words, C: Clock, S: BuildHasher> LimitHandle<'_, K, Local<A, C, S>> {
    /// Changes the algorithm; the units that were used stay used. `quota` is the new quota if that
    /// changes, and queued requests go at its pace.
    pub(crate) fn replace_algorithm(
        &self,
        algorithm: A,
        quota: Option<Quota>,
    ) -> Result<(), ConfigError> {
        let backend = self.backend;
        self.shared.lines.reschedule(queue::now(), || {
            let before = backend.quota();
            backend.set_algorithm(algorithm, Inherit::Additive)?;
            let quota = quota.filter(|_| backend.replans_line());
            Ok::<_, ConfigError>(quota.map(|quota| (before, quota)))
        })?;
        self.shared.refresh_policies();
        Ok(())
    }
}

#[cfg(feature = "redis")]
impl<K, A: Scripted> LimitHandle<'_, K, RedisLimiter<A>> {
    /// See [`RedisLimiter::set_quota`].
    ///
    /// # Errors
    /// See [`RedisLimiter::set_quota`].
    pub async fn set_quota(&self, quota: Quota) -> Result<(), StoreError> {
        self.backend.set_quota(quota).await?;
        self.shared.refresh_policies();
        Ok(())
    }
}

#[cfg(feature = "cas")]
impl<K, S: CasStore, A: crate::algorithm::Portable> LimitHandle<'_, K, Cas<S, A>> {
    /// See [`Cas::set_quota`].
    ///
    /// # Errors
    /// See [`Cas::set_quota`].
    pub async fn set_quota(&self, quota: Quota) -> Result<(), StoreError> {
        self.backend.set_quota(quota).await?;
        self.shared.refresh_policies();
        Ok(())
    }
}

#[cfg(feature = "cas")]
impl<K, S: CasStore, A: Shaped, M: Mode> LimitHandle<'_, K, FleetLimiter<S, A, M>> {
    /// See [`FleetLimiter::set_quota`].
    ///
    /// # Errors
    /// See [`FleetLimiter::set_quota`].
    pub async fn set_quota(&self, quota: Quota) -> Result<(), StoreError> {
        self.backend.set_quota(quota).await?;
        self.shared.refresh_policies();
        Ok(())
    }
}

/// Identifies the queue of a key of one limit, as the layer's backend does in
/// [`Backend::hash_queue`].
struct QueueOf<'a, K: ?Sized, L>(&'a [Step<'a>], &'a K, &'a L);

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
impl<K, L> Clone for LimitHandle<'_, K, L> {
    fn clone(&self) -> Self {
        Self {
            path: self.path.clone(),
            ..*self
        }
    }
}

/// Manual impl: derive would require `L: Debug`.
impl<K, L> fmt::Debug for LimitHandle<'_, K, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitHandle")
            .field("is_queue", &self.is_queue())
            .finish_non_exhaustive()
    }
}
