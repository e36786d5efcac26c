//! A limiter whose states are in a Redis server.

use std::{fmt, sync::Arc};

use tokio::runtime::Handle;

use super::{
    call::Call,
    connection::STORE,
    executor::{ScriptCall, ScriptExecutor},
    future::{Caching, RedisFuture},
    kernel::Kernels,
    server::Redis,
};
use crate::algorithm::{Algorithm, IntoAlgorithm, share_of};
use crate::backend::{Backend, Bans, IntoBackend, Op};
use crate::clock::{Clock, MonotonicClock};
use crate::error::{ConfigError, StoreError, expect_valid};
use crate::quota::Quota;
use crate::store::{
    any::any,
    cas::{Cas, CasBuilder, CasStore},
    deadline::within,
    events::RemoteMetrics,
    quotas::{QuotaPerKey, UnderQuota, under_in_store},
    remote::{
        Batcher, BreakerCounts, CacheSlot, DenyCache, RemoteKey, StoreLimiter, check_name, key_name,
    },
};

/// A limit whose states are in Redis, made by [`Redis::limiter`](super::Redis::limiter).
///
/// Clones are the same limiter. Calls that are in flight at the same time share a script call, so a
/// busy limiter makes many decisions per round trip.
pub struct RedisLimiter<A: Algorithm>(Arc<Inner<A>>);

struct Inner<A: Algorithm> {
    algorithm: A,
    /// The quota, if it is that of a key; see [`Quotas`](crate::store::Quotas).
    of_key: Option<Quota>,
    engine: Engine<A>,
}

/// Where the limit is decided.
enum Engine<A: Algorithm> {
    Script(Arc<Scripts>),
    /// In this process, on a state that is loaded and swapped.
    Swap(Cas<Redis, A>),
}

/// What decides by the script.
struct Scripts {
    kernels: Arc<Kernels>,
    /// The arguments of the most frequent call, unless they depend on the moment.
    take_one_args: Option<Arc<[u8]>>,
    /// One per connection.
    batchers: Box<[Arc<Batcher<ScriptExecutor>>]>,
    /// The start of the names of its keys.
    name_prefix: String,
    deny_cache: Option<Arc<DenyCache>>,
    redis: Redis,
}

impl Redis {
    /// A limit under a name of its own, by an algorithm or a tuple of them.
    ///
    /// The server decides every bucket, window, grid, line and log of up to 1,000 by a script. What has none, such as
    /// a [`Lockout`](crate::Lockout) or an algorithm of your own, is decided in this process, on a state that is
    /// loaded and swapped, as [`Cas`](crate::store::cas::Cas) does.
    ///
    /// # Panics
    /// If the name is not 1 to 64 letters, digits and any of `. _ -`, or if the algorithm is refused.
    #[track_caller]
    pub fn limiter<I>(&self, policy: &str, algorithm: I) -> RedisLimiter<I::Algorithm>
    where
        I: IntoAlgorithm<Algorithm: Algorithm>,
    {
        expect_valid(self.try_limiter(policy, algorithm))
    }

    pub(crate) fn try_limiter<I>(
        &self,
        policy: &str,
        algorithm: I,
    ) -> Result<RedisLimiter<I::Algorithm>, ConfigError>
    where
        I: IntoAlgorithm<Algorithm: Algorithm>,
    {
        check_name("policy", policy)?;
        let algorithm = algorithm.into_algorithm();
        algorithm.validate()?;
        if let Some(kernels) = Kernels::of(&algorithm) {
            let name_prefix = format!("{{{}:{policy}:", self.prefix);
            let scripts = Scripts::new(kernels, self, name_prefix);
            return Ok(RedisLimiter::of(
                algorithm,
                Engine::Script(Arc::new(scripts)),
            ));
        }
        let mut builder = CasBuilder::new(self.clone())
            .prefix(&*self.prefix)
            .deadline(self.deadline);
        if !self.caches_denials {
            builder = builder.without_deny_cache();
        }
        let engine = Engine::Swap(builder.build(policy, algorithm.clone())?);
        Ok(RedisLimiter::of(algorithm, engine))
    }
}

impl Scripts {
    fn new(kernels: Kernels, redis: &Redis, name_prefix: String) -> Self {
        let executor = |connection| ScriptExecutor::new(Arc::clone(connection), redis.deadline);
        let take_one_args = || kernels.args(Call::Take(1)).into();
        Self {
            take_one_args: (!kernels.is_dated()).then(take_one_args),
            batchers: redis.pool.iter().map(executor).map(Batcher::new).collect(),
            kernels: Arc::new(kernels),
            name_prefix,
            deny_cache: redis.caches_denials.then(|| Arc::new(DenyCache::new())),
            redis: redis.clone(),
        }
    }

    /// Asks the server for a key, to see whether it replies.
    async fn ready(&self) -> Result<(), StoreError> {
        let Redis { pool, deadline, .. } = &self.redis;
        let ends_at = MonotonicClock.now().plus(*deadline);
        match within(ends_at, self.redis.load(&self.name_prefix)).await {
            Some(loaded) => loaded.map(drop),
            None => Err(pool.first().deadline_exceeded(*deadline)),
        }
    }

    /// Calls the script. `of_key` is the quota of the key and what it is decided by, if it has its own.
    fn call<A: Algorithm>(
        &self,
        mut key: String,
        call: Call,
        (algorithm, of_key): (&A, Option<Quota>),
    ) -> RedisFuture<A> {
        let kernels = match (&self.take_one_args, of_key) {
            (Some(_), None) => Some(Arc::clone(&self.kernels)),
            // The quota is another one, or the moment.
            _ => Kernels::of(algorithm).map(Arc::new),
        };
        let Some(kernels) = kernels else {
            return RedisFuture::ready(Err(StoreError::new(NO_KERNELS, false)));
        };
        let args = match (&self.take_one_args, call) {
            (Some(args), Call::Take(1)) if of_key.is_none() => Arc::clone(args),
            _ => kernels.args(call).into(),
        };
        key.push_str(&kernels.layout);
        let now = MonotonicClock.now();
        let mut caching = Caching::Nothing;
        match &self.deny_cache {
            Some(cache) if call.is_update() => {
                cache.invalidate(&key);
                caching = Caching::Forgets(Arc::clone(cache), key.clone());
            }
            Some(cache) if matches!(call, Call::Take(1..)) => {
                match cache.get(&key, (call.cost(), of_key), now) {
                    Ok(denial) => {
                        RemoteMetrics(STORE).denied_by_cache();
                        return RedisFuture::ready(Ok(denial));
                    }
                    Err(version) => {
                        caching = Caching::Denial(CacheSlot::new(cache, key.clone(), version));
                    }
                }
            }
            _ => {}
        }
        let batcher = &self.batchers[self.redis.pool.index_for(&key, self.batchers.len())];
        match batcher.submit(ScriptCall { key, args }, now) {
            Ok(pending) => RedisFuture::pending(kernels, call, pending, caching),
            Err(error) => RedisFuture::ready(Err(error)),
        }
    }
}

const NO_KERNELS: &str = "Redis: no script decides this quota of a key";

impl<A: Algorithm> RedisLimiter<A> {
    fn of(algorithm: A, engine: Engine<A>) -> Self {
        let of_key = None;
        Self(Arc::new(Inner {
            algorithm,
            of_key,
            engine,
        }))
    }

    /// The same limit under another quota, or its own, on the same values.
    fn under(&self, quota: Option<Quota>) -> Result<Self, ConfigError> {
        let algorithm = under_in_store(&self.0.algorithm, quota)?;
        let engine = match &self.0.engine {
            Engine::Script(_) if Kernels::of(&algorithm).is_none() => {
                return Err(ConfigError::Unsupported {
                    what: "a quota of a key that the script of Redis does not count exactly",
                    instead: "use `Cas` with the same Redis server as its store",
                });
            }
            Engine::Script(scripts) => Engine::Script(Arc::clone(scripts)),
            Engine::Swap(cas) => Engine::Swap(cas.under(quota)?),
        };
        Ok(Self(Arc::new(Inner {
            of_key: Some(algorithm.quota()),
            algorithm,
            engine,
        })))
    }

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
        share_of(&self.0.algorithm, machines)
    }
}

impl<K: RemoteKey + ?Sized, A: Algorithm> Backend<K> for RedisLimiter<A> {
    type Future = RedisFuture<A>;

    fn apply(&self, key: &K, op: Op) -> RedisFuture<A> {
        match &self.0.engine {
            Engine::Script(scripts) => {
                let name = key_name(&scripts.name_prefix, key);
                let call = Call::new(op, || self.0.algorithm.quotas());
                scripts.call(name, call, (&self.0.algorithm, self.0.of_key))
            }
            Engine::Swap(cas) => RedisFuture::swap(cas.apply(key, op)),
        }
    }

    /// Runs `op` in a task: a call that is dropped while it is queued is not sent.
    fn detach(&self, key: &K, op: Op) {
        // Without a runtime, no call was ever made. The breaker and the log report errors.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(self.apply(key, op));
        }
    }

    fn quotas(&self) -> Vec<Quota> {
        self.0.algorithm.quotas()
    }

    fn limits(&self) -> usize {
        self.0.algorithm.capabilities().limits
    }
}

impl<A: Algorithm> IntoBackend for RedisLimiter<A> {
    type Backend = Self;

    fn into_backend(self) -> Self {
        self
    }

    fn queues(backend: &Self) -> bool {
        backend.0.algorithm.capabilities().queue > 0
    }
}

impl<K: RemoteKey + 'static, A: Algorithm> QuotaPerKey<K> for RedisLimiter<A> {
    fn into_quotas(self) -> Result<UnderQuota<K>, ConfigError> {
        Ok(Box::new(move |quota| self.under(quota).map(any)))
    }
}

impl<A: Algorithm> StoreLimiter for RedisLimiter<A> {
    async fn ready(&self) -> Result<(), StoreError> {
        match &self.0.engine {
            Engine::Script(scripts) => scripts.ready().await,
            Engine::Swap(cas) => cas.ready().await,
        }
    }

    fn last_error(&self) -> Option<StoreError> {
        match &self.0.engine {
            Engine::Script(scripts) => scripts.redis.pool.first().breakers().last_error(),
            Engine::Swap(cas) => cas.last_error(),
        }
    }

    fn breaker(&self) -> BreakerCounts {
        match &self.0.engine {
            Engine::Script(scripts) => scripts.redis.pool.first().breakers().counts(),
            Engine::Swap(cas) => cas.breaker(),
        }
    }
}

/// Manual impl: derive would require `A: Clone` of the contents, which are shared.
impl<A: Algorithm> Clone for RedisLimiter<A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<A: Algorithm> fmt::Debug for RedisLimiter<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLimiter")
            .field("algorithm", &self.0.algorithm)
            .finish_non_exhaustive()
    }
}

impl<A: Algorithm + Bans> Bans for RedisLimiter<A> {}
