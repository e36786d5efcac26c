//! A limiter whose states are in a Redis server.

use std::{fmt, sync::Arc, time::Duration};

use tokio::runtime::Handle;

use super::{
    batch::{ResponseHooks, ScriptCall},
    deny_cache::{CacheVersion, DenyCache},
    future::{DecisionResult, FutureState, RedisFuture},
    key::{KeyName, RedisKey},
    live_policy::LivePolicy,
    params::Call,
    script::{self, Args, Scripted},
};
use crate::algorithm::{Packing, quotas};
use crate::backend::{Backend, IntoBackend, Op};
use crate::clock::{Clock, MonotonicClock, nanos};
use crate::error::{ConfigError, StoreError};
use crate::quota::Quota;

/// A limit whose states are in Redis; made by
/// [`Redis::limiter`](super::Redis::limiter).
///
/// Clones are the same limiter. Calls that are in flight together are gathered into one script
/// call, so a busy limiter needs one round trip for many decisions.
pub struct RedisLimiter<A: Scripted>(Arc<Inner<A>>);

struct Inner<A> {
    tuning: LivePolicy<A>,
    /// What the names of its keys begin with.
    start: String,
    /// What needs no asking.
    denied: Option<DenyCache>,
}

impl<A: Scripted> RedisLimiter<A> {
    pub(super) fn new(start: String, denied: Option<DenyCache>, tuning: LivePolicy<A>) -> Self {
        Self(Arc::new(Inner {
            tuning,
            start,
            denied,
        }))
    }

    /// Takes a place in line: the cost is taken now and the request goes through after the wait
    /// that the decision states. DenyCache if that is longer than `max_wait`.
    ///
    /// An algorithm that keeps no line decides as always, without a wait.
    pub fn reserve<K>(&self, key: &K, cost: u64, max_wait: Duration) -> RedisFuture<A>
    where
        K: RedisKey + ?Sized,
    {
        self.call(key, Call::Reserve(cost, nanos(max_wait)))
    }

    /// The algorithm with this machine's share of the quota: for a limit in process that stands in
    /// while Redis cannot be asked, on each of so many machines (see
    /// [`Fallback`](crate::store::Fallback)).
    ///
    /// Where there are more machines than units, each has one in a longer period.
    ///
    /// # Errors
    /// If the algorithm has no such quota, as a set of several limits does.
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
        let tuned = self.0.tuning.present();
        let quota = tuned.algorithm.quota();
        let machines = machines.max(1);
        let share = match quota.limit() / machines {
            0 => {
                let longer = u128::from(quota.period_ns()) * u128::from(machines);
                let ns = longer.div_ceil(u128::from(quota.limit()));
                let ns = u64::try_from(ns).unwrap_or(u64::MAX);
                Quota::try_per(1, Duration::from_nanos(ns))?
            }
            limit => Quota::try_per(limit, quota.period())?,
        };
        let burst = (quota.capacity() / machines).max(1);
        let share = if quota.capacity() == quota.limit() {
            share
        } else {
            share.try_burst(burst)?
        };
        tuned.algorithm.with_quota(share)
    }

    /// Changes the quota for all keys and for the whole fleet. What was used stays used.
    ///
    /// The change is stored at `{prefix:policy}:quota` and holds until the next one, over restarts
    /// too. Every other limiter of this policy takes it over within a second of being used, if it
    /// was configured with the same quota as this one; a rollout with another quota makes an end of
    /// it. Setting the configured quota takes it back.
    ///
    /// # Errors
    /// If the algorithm has no such quota, as a set of several limits does not; or if the change
    /// cannot be stored. On a transient error it may have been stored: set it again.
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
        inner.tuning.set_quota(quota, inner.denied.as_ref()).await
    }

    pub(super) fn deadline(&self) -> Duration {
        self.0.tuning.deadline()
    }

    fn call<K: RedisKey + ?Sized>(&self, key: &K, call: Call) -> RedisFuture<A> {
        let inner = &self.0;
        let tuned = inner.tuning.present();
        let mut name = KeyName::new(&inner.start);
        key.write(&mut name);
        let name = name.finish();
        let mut watch = None;
        if let Some(denied) = &inner.denied {
            match call {
                Call::Take(cost) if cost > 0 => {
                    match denied.look(&name, cost, MonotonicClock.now()) {
                        Ok(denial) => {
                            return RedisFuture {
                                limiter: self.clone(),
                                tuned,
                                call,
                                state: FutureState::Ready(Some(Ok(denial))),
                                watch: None,
                            };
                        }
                        Err(since) => watch = Some((name.clone(), since)),
                    }
                }
                Call::Take(_) | Call::Peek(_) | Call::Reserve(..) => {}
                Call::Refund(_) | Call::Charge(_) | Call::Reset => denied.forget(&name),
            }
        }
        let args = match call {
            Call::Take(1) => tuned.take_one.clone(),
            call => Args::of(&tuned.algorithm, call),
        };
        let state = match tuned.batch(&name).call(ScriptCall { key: name, args }) {
            Ok(answer) => FutureState::Pending(answer),
            Err(error) => FutureState::Ready(Some(Err(error))),
        };
        if inner.tuning.is_due(MonotonicClock.now()) {
            // Only where a call was made: no more is asked of a server that does not answer.
            if let (FutureState::Pending(_), Ok(runtime)) = (&state, Handle::try_current()) {
                let inner = Arc::clone(inner);
                runtime.spawn(async move { inner.tuning.look(inner.denied.as_ref()).await });
            }
        }
        RedisFuture {
            limiter: self.clone(),
            tuned,
            call,
            state,
            watch,
        }
    }

    /// The decision that was told, remembering what it tells about the next one.
    pub(super) fn hear(
        &self,
        algorithm: &A,
        call: Call,
        answer: &ResponseHooks,
        watch: Option<(String, CacheVersion)>,
    ) -> DecisionResult {
        let inner = &self.0;
        let told = script::decision(algorithm, call, answer.now(), answer.outcome())?;
        if let (Some(next), Some(denied), Some((name, since)), Call::Take(cost)) =
            (told.denied, &inner.denied, watch, call)
        {
            denied.remember(name, cost, next, since);
        }
        Ok(told.decision)
    }
}

impl<K: RedisKey + ?Sized, A: Scripted> Backend<K> for RedisLimiter<A> {
    type Future = RedisFuture<A>;

    fn apply(&self, key: &K, op: Op) -> RedisFuture<A> {
        let call = match op {
            Op::Take(cost) => Call::Take(cost),
            Op::Peek(cost) => Call::Peek(cost),
            Op::Refund(cost) => Call::Refund(cost),
            Op::Charge(cost) => Call::Charge(cost),
            Op::Reset => Call::Reset,
        };
        self.call(key, call)
    }

    /// Waits for the answer in a task of its own: a call that is dropped before its turn is not
    /// sent.
    fn detach(&self, key: &K, op: Op) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            // Without a runtime nothing was sent before either.
            return;
        };
        let future = self.apply(key, op);
        runtime.spawn(async move {
            // Nobody is there to be told of an error.
            let _ = future.await;
        });
    }

    fn quotas(&self) -> Vec<Quota> {
        quotas(&self.0.tuning.present().algorithm)
    }

    fn limits(&self) -> usize {
        A::Packing::limit_count(&self.0.tuning.present().algorithm)
    }
}

impl<A: Scripted> IntoBackend for RedisLimiter<A> {
    type Backend = Self;

    fn into_backend(self) -> Self {
        self
    }
}

/// By hand: a clone shares the algorithm too.
impl<A: Scripted> Clone for RedisLimiter<A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<A: Scripted> fmt::Debug for RedisLimiter<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLimiter")
            .field("name", &self.0.start)
            .field("algorithm", &self.0.tuning.present().algorithm)
            .finish_non_exhaustive()
    }
}
