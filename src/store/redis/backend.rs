//! A limiter whose states are in a Redis server.

use std::{fmt, sync::Arc, time::Duration};

use tokio::runtime::Handle;

use super::{
    call::Call,
    connection::STORE,
    executor::ScriptCall,
    future::{Caching, RedisFuture},
    policy::RedisPolicy,
    script::{Scripted, shares_use},
};
use crate::algorithm::Portable;
use crate::backend::{Backend, Bans, IntoBackend, Op};
use crate::clock::{Clock, MonotonicClock, Tick, nanos};
use crate::error::{ConfigError, StoreError};
use crate::quota::Quota;
use crate::store::{
    events::RemoteMetrics,
    remote::{
        BreakerCounts, CacheSlot, DenyCache, LivePolicy, QuotaPerKey, RemoteKey, StoreLimiter,
        key_name,
    },
};

/// A limit whose states are in Redis, made by [`Redis::limiter`](super::Redis::limiter).
///
/// Clones are the same limiter. Calls that are in flight at the same time share a script call, so a
/// busy limiter makes many decisions per round trip.
pub struct RedisLimiter<A: Scripted>(Arc<Inner<A>>);

struct Inner<A: Scripted> {
    policy: LivePolicy<RedisPolicy<A>>,
    /// The start of the names of its keys.
    name_prefix: String,
    deny_cache: Option<Arc<DenyCache>>,
}

impl<A: Scripted> RedisLimiter<A> {
    pub(super) fn new(
        name_prefix: String,
        caches_denials: bool,
        policy: LivePolicy<RedisPolicy<A>>,
    ) -> Self {
        Self(Arc::new(Inner {
            policy,
            name_prefix,
            deny_cache: caches_denials.then(|| Arc::new(DenyCache::new())),
        }))
    }

    /// Queues a request: takes the cost now, and returns how long the request has to wait. Denied if
    /// the wait would be longer than `max_wait`.
    ///
    /// An algorithm without a queue decides as always, without a wait.
    pub fn reserve<K>(&self, key: &K, cost: u64, max_wait: Duration) -> RedisFuture<A>
    where
        K: RemoteKey + ?Sized,
    {
        self.call(key, Call::Reserve(cost, nanos(max_wait)))
    }

    /// Changes the quota for all keys and for the whole fleet. Used units stay used.
    ///
    /// The change is stored at `{prefix:policy}:quota` and holds until the next change, across
    /// restarts. Every other limiter of this policy adopts it within a second while it is in use, if
    /// it was configured with the same quota as this one. A rollout with another quota ends it.
    /// Setting the configured quota removes it.
    ///
    /// # Errors
    /// If the algorithm has several quotas, as a set of limits does; or if the change cannot be
    /// stored. After a transient error it may have been stored: set it again.
    ///
    /// ```no_run
    /// # async fn example(redis: tower_throttle::store::redis::Redis) -> Result<(), tower_throttle::StoreError> {
    /// use tower_throttle::{Quota, TokenBucket};
    ///
    /// let limiter = redis.limiter("api", TokenBucket::new(Quota::per_second(10)));
    /// limiter.set_quota(Quota::per_second(20)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set_quota(&self, quota: Quota) -> Result<(), StoreError> {
        let inner = &self.0;
        let deny_cache = inner.deny_cache.as_deref();
        inner.policy.set_quota(quota, deny_cache).await
    }

    fn call<K: RemoteKey + ?Sized>(&self, key: &K, call: Call) -> RedisFuture<A> {
        self.refresh_if_due(MonotonicClock.now());
        self.call_named(self.key_name(key), call, None)
    }

    fn call_named(&self, key: String, call: Call, of_key: Option<Arc<A>>) -> RedisFuture<A> {
        let inner = &self.0;
        let now = MonotonicClock.now();
        let quota = of_key.as_ref().map(|algorithm| algorithm.quota());
        let mut caching = Caching::Nothing;
        if let Some(cache) = &inner.deny_cache {
            match call {
                Call::Take(cost) if cost > 0 => match cache.get(&key, (cost, quota), now) {
                    Ok(denial) => {
                        RemoteMetrics(STORE).denied_by_cache();
                        return RedisFuture::ready(inner.policy.active(), call, Ok(denial));
                    }
                    Err(version) => {
                        let slot = CacheSlot::new(cache, key.clone(), version);
                        caching = Caching::Denial(slot);
                    }
                },
                Call::Take(_) | Call::Peek(_) | Call::PeekOf(..) | Call::Reserve(..) => {}
                Call::Refund(..)
                | Call::Cancel(..)
                | Call::Forgive(..)
                | Call::Charge(_)
                | Call::Ban(_)
                | Call::Reset => {
                    cache.invalidate(&key);
                    caching = Caching::Forgets(Arc::clone(cache), key.clone());
                }
            }
        }
        // A change of quota after the cache was asked is one that it counts.
        let policy = inner.policy.active();
        let args = policy.args(call, of_key.as_deref());
        match policy.batcher(&key).submit(ScriptCall { key, args }, now) {
            Ok(pending) => RedisFuture::pending((policy, of_key), call, pending, caching),
            Err(error) => RedisFuture::ready(policy, call, Err(error)),
        }
    }

    /// Starts to read the stored quota, if that is due. Also if every call is denied by the cache.
    fn refresh_if_due(&self, now: Tick) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if self.0.policy.is_refresh_due(now) {
            let inner = Arc::clone(&self.0);
            runtime.spawn(async move { inner.policy.refresh(inner.deny_cache.as_deref()).await });
        }
    }
}

impl<K: RemoteKey + ?Sized, A: Scripted> Backend<K> for RedisLimiter<A> {
    type Future = RedisFuture<A>;

    fn apply(&self, key: &K, op: Op) -> RedisFuture<A> {
        self.call(key, Call::from(op))
    }

    /// Runs `op` in a task: a call that is dropped while it is queued is not sent.
    fn detach(&self, key: &K, op: Op) {
        // Without a runtime, no call was ever made. The breaker and the log report errors.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(self.apply(key, op));
        }
    }

    fn quotas(&self) -> Vec<Quota> {
        self.0.policy.active().algorithm.quotas()
    }

    fn limits(&self) -> usize {
        self.0.policy.active().algorithm.facts().limits
    }

    fn max_wait(&self, _: &K) -> Duration {
        self.0.policy.active().algorithm.facts().max_wait
    }
}

impl<A: Scripted> IntoBackend for RedisLimiter<A> {
    type Backend = Self;

    fn into_backend(self) -> Self {
        self
    }

    fn queues(backend: &Self) -> bool {
        backend.0.policy.active().algorithm.facts().queues
    }
}

impl<A: Scripted> QuotaPerKey for RedisLimiter<A> {
    type Algorithm = A;
    type Decision = RedisFuture<A>;

    fn algorithm(&self) -> A {
        self.0.policy.active().algorithm.clone()
    }

    fn with_key_quota(algorithm: &A, quota: Quota) -> Result<A, ConfigError> {
        if !shares_use(algorithm) {
            return Err(ConfigError::Unsupported {
                what: "a quota per key for a warm-up in Redis",
                instead: "use `Cas` with the same Redis server as its store",
            });
        }
        algorithm.with_quota(quota)?.prepared()
    }

    fn key_name<K: RemoteKey + ?Sized>(&self, key: &K) -> String {
        key_name(&self.0.name_prefix, key)
    }

    fn apply_under(&self, algorithm: &Arc<A>, key: String, op: Op) -> RedisFuture<A> {
        self.call_named(key, Call::from(op), Some(Arc::clone(algorithm)))
    }
}

impl<A: Scripted + Portable> RedisLimiter<A> {
    /// The algorithm with this machine's share of the quota, for a limit in process on each of
    /// `machines` machines while Redis is unavailable (see [`Fallback`](crate::store::Fallback)).
    ///
    /// Each limit of a set has its share. If there are more machines than units, each machine gets one unit
    /// per longer period.
    ///
    /// # Errors
    /// If a share would be a unit in more than a quota can say.
    ///
    /// ```
    /// use tower_throttle::{Quota, TokenBucket, algorithm::Algorithm, store::redis::Redis};
    ///
    /// let redis = Redis::open("redis://127.0.0.1:6379")?;
    /// let limiter = redis.limiter("api", TokenBucket::new(Quota::per_second(10).burst(50)));
    /// assert_eq!(limiter.share_of(5)?.quota().to_string(), "2/s; burst=10");
    /// assert_eq!(limiter.share_of(20)?.quota().to_string(), "1/2s; burst=2");
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn share_of(&self, machines: u64) -> Result<A, ConfigError> {
        let mut share = self.0.policy.active().algorithm.clone();
        A::take_share(&mut share, machines)?;
        Ok(share)
    }
}

impl<A: Scripted> StoreLimiter for RedisLimiter<A> {
    async fn set_quota(&self, quota: Quota) -> Result<(), StoreError> {
        Self::set_quota(self, quota).await
    }

    async fn ready(&self) -> Result<(), StoreError> {
        self.0.policy.ready().await
    }

    fn last_error(&self) -> Option<StoreError> {
        self.0.policy.active().breakers().last_error()
    }

    fn breaker(&self) -> BreakerCounts {
        self.0.policy.active().breakers().counts()
    }
}

/// Manual impl: derive would require `A: Clone` of the contents, which are shared.
impl<A: Scripted> Clone for RedisLimiter<A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<A: Scripted> fmt::Debug for RedisLimiter<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLimiter")
            .field("name_prefix", &self.0.name_prefix)
            .field("algorithm", &self.0.policy.active().algorithm)
            .finish_non_exhaustive()
    }
}

impl<A: Scripted + Bans> Bans for RedisLimiter<A> {}
