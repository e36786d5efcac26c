//! Looking at a limit and changing it while it runs.

use std::{
    fmt,
    hash::{BuildHasher, Hash},
    sync::Arc,
};

use super::{Counts, RateLimitLayer, reservation::single, state::State};
use crate::algorithm::Algorithm;
use crate::backend::{Backend, Op};
use crate::clock::Clock;
use crate::error::ConfigError;
#[cfg(feature = "redis")]
use crate::error::StoreError;
use crate::queue::LineTimer;
use crate::quota::Quota;
use crate::store::local::{Local, Stats};
#[cfg(feature = "redis")]
use crate::store::redis::{RedisLimiter, Scripted};

/// Looks at a layer's limits and changes them while requests are served.
///
/// It stays connected with the layer and everything made from it, however far those have been
/// moved into a router. Clones are handles of the same limits.
///
/// Keys are given as the layer finds them: the same type with the same value. The answers are
/// futures; those of limiters in this process are ready at once.
pub struct Handle<L> {
    state: Arc<State<L>>,
}

impl<K, L, R> RateLimitLayer<K, L, R> {
    /// A handle of its limits.
    pub fn handle(&self) -> Handle<L> {
        Handle {
            state: Arc::clone(self.state()),
        }
    }
}

impl<L> Handle<L> {
    /// The decision that a request of `cost` would get now, taking nothing.
    pub fn peek<K: ?Sized>(&self, key: &K, cost: u64) -> L::Future
    where
        L: Backend<K>,
    {
        self.state.limiter.apply(key, Op::Peek(cost))
    }

    /// Forgets what `key` has used. Requests that wait keep their turns; the moments that newcomers
    /// are granted before that go to those who wait, in order.
    pub fn reset<K: ?Sized>(&self, key: &K) -> L::Future
    where
        L: Backend<K>,
    {
        self.state.limiter.apply(key, Op::Reset)
    }

    /// Counts `cost` as used by `key`, even if that is more than it has: a penalty, or what was
    /// used elsewhere. Requests that wait keep their turns, which they were promised; those that come
    /// after them wait longer.
    pub fn penalise<K: ?Sized>(&self, key: &K, cost: u64) -> L::Future
    where
        L: Backend<K>,
    {
        self.state.limiter.apply(key, Op::Charge(cost))
    }

    /// Gives `cost` back to `key`; never more than it has used. Requests that wait move up by what
    /// it is worth. Where several limits have their say and none can tell that, they keep their turns
    /// until newcomers are granted earlier ones, which go to those who wait, in order.
    pub fn refund<K: Hash + ?Sized>(&self, key: &K, cost: u64) -> L::Future
    where
        L: Backend<K>,
    {
        let refund = || self.state.limiter.apply(key, Op::Refund(cost));
        if cost == 0 || !self.state.lines.anyone() {
            return refund();
        }
        // The line and a limiter in this process change together.
        let mut held = self.state.lines.hold(key);
        let _ = held.move_up(cost, LineTimer::now(), || single(&self.state.limiter));
        let refunding = refund();
        held.moved();
        refunding
    }

    /// How many requests met which fate so far.
    pub fn counts(&self) -> Counts {
        self.state.counts.read()
    }

    /// How many requests wait for their turn now.
    pub fn waiting(&self) -> u64 {
        self.state.lines.waiting()
    }

    /// The limiter itself. After changing its quotas tell clients with [`refresh_policies`](Self::refresh_policies). What
    /// is changed here is not known to those who wait: they keep their turns, where
    /// [`set_quota`](Handle::set_quota) plans them anew.
    pub fn limiter(&self) -> &L {
        &self.state.limiter
    }

    /// Tells clients the quotas that the limiter has now, where responses have headers about it.
    pub fn refresh_policies(&self) {
        self.state.refresh_policies();
    }
}

impl<A: Algorithm, C: Clock, S: BuildHasher> Handle<Local<A, C, S>> {
    /// How the table of keys is doing: its size, and what it could not keep for want of room.
    ///
    /// ```
    /// use tower_throttle::{FixedWindow, Global, Quota, RateLimitLayer};
    ///
    /// let layer = RateLimitLayer::new(Global, FixedWindow::new(Quota::per_day(100)));
    /// assert_eq!(layer.handle().stats().evicted, 0);
    /// ```
    pub fn stats(&self) -> Stats {
        self.state.limiter.stats()
    }

    /// Changes the quota for all keys. What they have used stays used, and clients are told the new
    /// quota from now on. Requests that wait have as many before them as they had, who go at the
    /// new pace from now on; only in a [`WarmUp`](crate::WarmUp) do they keep their turns.
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
    /// If the algorithm has no such quota, as a set of several limits does.
    pub fn set_quota(&self, quota: Quota) -> Result<(), ConfigError> {
        let limiter = &self.state.limiter;
        self.state.lines.reschedule(LineTimer::now(), || {
            let before = limiter.quota();
            limiter.set_quota(quota)?;
            Ok(limiter.replans_line().then_some((before, quota)))
        })?;
        self.refresh_policies();
        Ok(())
    }
}

#[cfg(feature = "redis")]
impl<A: Scripted> Handle<RedisLimiter<A>> {
    /// Changes the quota for all keys and for the whole fleet: see [`RedisLimiter::set_quota`].
    /// Clients of this machine are told the new quota from now on; those of another one as soon as
    /// somebody calls [`refresh_policies`](Self::refresh_policies) there.
    ///
    /// # Errors
    /// As those of [`RedisLimiter::set_quota`].
    pub async fn set_quota(&self, quota: Quota) -> Result<(), StoreError> {
        self.state.limiter.set_quota(quota).await?;
        self.refresh_policies();
        Ok(())
    }
}

/// By hand: the limiter is shared and need not be `Clone`.
impl<L> Clone for Handle<L> {
    fn clone(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
        }
    }
}

/// By hand: limiters need no `Debug`.
impl<L> fmt::Debug for Handle<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("name", &self.state.name())
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}
