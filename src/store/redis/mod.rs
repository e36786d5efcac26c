//! One limit for many machines, exact, in a Redis server.
//!
//! Every algorithm is one script: a decision is one round trip, decided in the order in which the
//! server takes the calls, on the server's clock. Many machines under one limit admit together
//! exactly what one machine would.
//!
//! ```no_run
//! use tower_throttle::{KeyedLimiter, Quota, SlidingWindow, store::redis::Redis};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let redis = Redis::open("redis://127.0.0.1:6379")?;
//! let limiter = redis.limiter("pay", SlidingWindow::new(Quota::per_hour(1_000)));
//! if limiter.decide("tenant 7", 1).await?.is_admitted() {
//!     println!("go");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What is stored
//!
//! One key for each limit and key, `{prefix:policy:key}` (see [`RedisKey`]; the further limits of a
//! tuple are at the same name and `:1`, `:2`, in the same slot). It expires when the limiter would
//! decide the same without it, so what nobody asks for disappears. A denied request writes
//! nothing. The value says which quota it was made for: a limiter with another quota carries it
//! over as [`Inherit::AsIs`](crate::Inherit::AsIs) says, so a changed configuration neither forgets
//! what was used nor gives it out again.
//!
//! [`RedisLimiter::set_quota`] changes the quota of the fleet while it runs: one key more for each
//! policy, where all limiters look once a second.
//!
//! # Speed
//!
//! Calls in flight together share a script call, and one that is alone costs hardly more than a
//! script written by hand. `cargo run --release -p compare -- redis` measures both beside such a
//! script, on the machine that it runs on.
//!
//! # Numbers
//!
//! Redis counts microseconds, and its scripts count exactly up to 2^53. Windows and their offsets
//! are whole microseconds, and what a caller is told to wait is rounded up to one; within that
//! every decision is the one that the algorithm makes in process. A quota whose figures do not fit
//! is refused when the limiter is made. If the server's clock is set back, states move with it:
//! nobody is admitted more for it, and nobody denied for longer than an exhausted key would be. If
//! it is set forward, keys regain at most what they had at the beginning.
//!
//! # Failure
//!
//! A call ends within the [deadline](Redis::deadline), with a decision or with a
//! [`StoreError`] that says whether it passes by itself. What may have been
//! carried out is never sent again, so a request is counted at most once. A connection that broke,
//! went silent or leads to a replica is replaced. After three failures in a row the server is left
//! alone, but for a probe each 250 ms; calls in between fail at once. In a cluster the other servers
//! are asked as always.
//!
//! If the server loses what it stored (a failover before the last writes reached the replica,
//! `FLUSHALL`, eviction, a restart without its file), the keys begin anew. Give a limit that
//! matters a server whose `maxmemory-policy` is `noeviction`.

mod any;
mod batch;
mod breaker;
mod connection;
mod denied;
#[cfg(test)]
mod differential;
mod figures;
mod future;
#[cfg(feature = "governor")]
mod gcra;
mod key;
mod rates;
mod reply;
mod script;
mod tuning;

pub use self::{
    breaker::BreakerCounts,
    future::RedisFuture,
    key::{KeyName, RedisKey},
    script::Scripted,
};

use std::{fmt, sync::Arc, time::Duration};

use tokio::runtime::Handle;

use self::{
    batch::{Answer, Asked},
    connection::{Link, Source},
    denied::{Denied, Since},
    figures::Call,
    future::{Heard, Waiting},
    script::{Args, sealed::Script as _},
    tuning::Tuning,
};
use crate::algorithm::IntoAlgorithm;
use crate::clock::{Clock, MonotonicClock, nanos};
use crate::error::{ConfigError, StoreError};
use crate::limiter::{IntoLimiter, KeyedLimiter, Op};
use crate::quota::Quota;

/// A Redis server, or a cluster of them, to keep limits in.
///
/// Clones share the connection. It is made when the first call needs it.
#[derive(Clone, Debug)]
pub struct Redis {
    link: Arc<Link>,
    prefix: String,
    deadline: Duration,
    remembers: bool,
}

impl Redis {
    /// The server at a URL: `redis://user:password@host:6379/0`, `rediss://..` for TLS (with the
    /// feature `redis-tls`), `redis+unix:///path`.
    ///
    /// # Errors
    /// If that is no URL of a Redis server.
    pub fn open(url: &str) -> Result<Self, ConfigError> {
        // The URL is not repeated: it may hold a password.
        let client = redis::Client::open(url).map_err(|error| ConfigError::Syntax {
            text: "the URL of Redis".to_owned(),
            expected: format!("redis://user:password@host:port/database ({error})"),
        })?;
        Ok(Self::with_client(client))
    }

    /// The server of a client.
    pub fn with_client(client: redis::Client) -> Self {
        Self::with(Source::Client(client))
    }

    /// A connection that is there already. It cannot be replaced if it breaks; prefer a URL or a
    /// client.
    pub fn with_connection(connection: redis::aio::MultiplexedConnection) -> Self {
        Self::with(Source::Connection(connection))
    }

    /// The primary that Redis Sentinel names, asked for whenever a connection is made: after a
    /// failover calls go to the new primary. Build the client for
    /// [`SentinelServerType::Master`](redis::sentinel::SentinelServerType::Master).
    ///
    /// A primary that was cut off takes itself for one until a Sentinel tells it otherwise, and
    /// whoever reaches it meanwhile is counted there, in vain. `min-replicas-to-write 1` in its
    /// configuration keeps that short.
    ///
    /// ```no_run
    /// use redis::sentinel::{SentinelClient, SentinelServerType};
    /// use tower_throttle::store::redis::Redis;
    ///
    /// # fn example() -> redis::RedisResult<()> {
    /// let sentinels = vec!["redis://10.0.0.1:26379", "redis://10.0.0.2:26379"];
    /// let primary = SentinelServerType::Master;
    /// let redis = Redis::with_sentinel(SentinelClient::build(
    ///     sentinels,
    ///     "mymaster".to_owned(),
    ///     None,
    ///     primary,
    /// )?);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "redis-sentinel")]
    #[cfg_attr(tower_throttle_docs, doc(cfg(feature = "redis-sentinel")))]
    pub fn with_sentinel(client: redis::sentinel::SentinelClient) -> Self {
        Self::with(Source::Sentinel(Box::new(tokio::sync::Mutex::new(client))))
    }

    /// A Redis Cluster.
    ///
    /// However the builder is set, its client tries nothing again by itself: it would also send a
    /// call again whose connection broke, which may then be counted twice. A slot that has moved,
    /// or is on its way, is followed.
    ///
    /// # Errors
    /// If the builder has no valid address of a server.
    ///
    /// ```no_run
    /// use redis::cluster::ClusterClientBuilder;
    /// use tower_throttle::store::redis::Redis;
    ///
    /// let servers = ["redis://10.0.0.1:6379", "redis://10.0.0.2:6379"];
    /// let redis = Redis::with_cluster(ClusterClientBuilder::new(servers))?;
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    #[cfg(feature = "redis-cluster")]
    #[cfg_attr(tower_throttle_docs, doc(cfg(feature = "redis-cluster")))]
    pub fn with_cluster(
        builder: redis::cluster::ClusterClientBuilder,
    ) -> Result<Self, ConfigError> {
        let source = Source::cluster(builder).map_err(|error| ConfigError::Syntax {
            text: "the servers of a Redis Cluster".to_owned(),
            expected: format!("redis://user:password@host:port ({error})"),
        })?;
        Ok(Self::with(source))
    }

    fn with(source: Source) -> Self {
        Self {
            link: Link::new(source),
            prefix: "throttle".to_owned(),
            deadline: Duration::from_millis(50),
            remembers: true,
        }
    }

    /// What the names of all keys begin with, `throttle` where nothing is said. Limits with the
    /// same prefix and policy are one limit.
    ///
    /// # Errors
    /// If it is not 1 to 64 letters, digits and any of `. _ -`.
    pub fn prefix(mut self, prefix: &str) -> Result<Self, ConfigError> {
        named("prefix", prefix)?;
        prefix.clone_into(&mut self.prefix);
        Ok(self)
    }

    /// How long a call may take, 50 ms where nothing is said. A call that takes longer is an
    /// error; it may have been counted.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Asks Redis about every request, also about those that are known to be denied.
    ///
    /// Where nothing is said a denial is remembered until its exact `retry_after`, for at most 10
    /// seconds, and the same request of the same key is denied without asking: whoever hammers
    /// costs Redis next to nothing. Giving something back, or a reset, through this limiter or its
    /// clones ends that at once; through another machine it is seen when the denial ends.
    #[must_use]
    pub const fn ask_always(mut self) -> Self {
        self.remembers = false;
        self
    }

    /// Asks the server whether it may lose limits, for a warning in the log when a program starts:
    /// answers what is amiss, and what to do about it. Nothing is asked of a cluster.
    ///
    /// # Errors
    /// If it cannot be asked.
    ///
    /// ```no_run
    /// # async fn example(redis: tower_throttle::store::redis::Redis) {
    /// match redis.check().await {
    ///     Ok(Some(warning)) => eprintln!("limits in Redis: {warning}"),
    ///     Ok(None) => {}
    ///     Err(error) => eprintln!("Redis cannot be asked yet: {error}"),
    /// }
    /// # }
    /// ```
    pub async fn check(&self) -> Result<Option<String>, StoreError> {
        if !self.link.gathers() {
            return Ok(None);
        }
        let mut info = redis::cmd("INFO");
        info.arg("memory");
        let limit = Duration::from_secs(2).max(self.deadline);
        let value = tokio::time::timeout(limit, self.link.send(&info))
            .await
            .map_err(|_| StoreError::new(format!("Redis: no answer within {limit:?}"), true))?
            .map_err(|failure| failure.error)?;
        let text = match value {
            redis::Value::BulkString(bytes) => String::from_utf8(bytes).unwrap_or_default(),
            redis::Value::VerbatimString { text, .. } => text,
            _ => String::new(),
        };
        let policy = text
            .lines()
            .find_map(|line| line.strip_prefix("maxmemory_policy:"))
            .map(str::trim);
        Ok(match policy {
            None | Some("noeviction") => None,
            Some(policy) => Some(format!(
                "maxmemory-policy is {policy}: a full server forgets keys, and whoever is forgotten \
                 begins anew; set it to noeviction"
            )),
        })
    }

    /// Whether the server is left alone because it does not answer, and how often it was. Each
    /// switch is also logged (feature `tracing`) and counted as `tower_throttle_switches_total`
    /// (feature `metrics`).
    ///
    /// ```
    /// use tower_throttle::store::redis::Redis;
    ///
    /// let redis = Redis::open("redis://127.0.0.1:6379")?;
    /// assert!(!redis.breaker().is_open);
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn breaker(&self) -> BreakerCounts {
        self.link.breaker()
    }

    /// A limit under a name of its own. Takes an algorithm or a tuple of them.
    ///
    /// # Panics
    /// If [`try_limiter`](Self::try_limiter) answers with an error.
    #[track_caller]
    pub fn limiter<I>(&self, policy: &str, algorithm: I) -> RedisLimiter<I::Algorithm>
    where
        I: IntoAlgorithm<Algorithm: Scripted>,
    {
        self.try_limiter(policy, algorithm)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`limiter`](Self::limiter), for values that come from elsewhere.
    ///
    /// # Errors
    /// If the name is not 1 to 64 letters, digits and any of `. _ -`, or the algorithm has figures
    /// that a script cannot count with.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{FixedWindow, Quota, store::redis::Redis};
    ///
    /// let redis = Redis::open("redis://127.0.0.1:6379")?;
    /// let window = FixedWindow::new(Quota::per(1, Duration::from_nanos(1_500)));
    /// let error = redis.try_limiter("odd", window).unwrap_err();
    /// assert!(error.to_string().starts_with("period: 1500 ns is not allowed; give whole microseconds"));
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn try_limiter<I>(
        &self,
        policy: &str,
        algorithm: I,
    ) -> Result<RedisLimiter<I::Algorithm>, ConfigError>
    where
        I: IntoAlgorithm<Algorithm: Scripted>,
    {
        named("policy", policy)?;
        let algorithm = algorithm.into_algorithm().prepared()?;
        let key = format!("{{{}:{policy}}}:quota", self.prefix);
        Ok(RedisLimiter(Arc::new(Inner {
            start: format!("{{{}:{policy}:", self.prefix),
            denied: self.remembers.then(Denied::new),
            tuning: Tuning::new(&self.link, self.deadline, key, algorithm),
        })))
    }
}

fn named(field: &'static str, name: &str) -> Result<(), ConfigError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=64).contains(&name.len()) && name.bytes().all(plain) {
        return Ok(());
    }
    Err(ConfigError::out_of_range(
        field,
        format!("{name:?}"),
        "1 to 64 letters, digits and any of . _ -",
    ))
}

/// A limit whose states are in Redis; made by [`Redis::limiter`].
///
/// Clones are the same limiter. Calls that are in flight together are gathered into one script
/// call, so a busy limiter needs one round trip for many decisions.
pub struct RedisLimiter<A: Scripted>(Arc<Inner<A>>);

struct Inner<A> {
    tuning: Tuning<A>,
    /// What the names of its keys begin with.
    start: String,
    /// What needs no asking.
    denied: Option<Denied>,
}

impl<A: Scripted> RedisLimiter<A> {
    /// Takes a place in line: the cost is taken now and the request goes through after the wait
    /// that the decision states. Denied if that is longer than `max_wait`.
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
                                state: Waiting::Over(Some(Ok(denial))),
                                watch: None,
                            };
                        }
                        Err(since) => watch = Some((name.clone(), since)),
                    }
                }
                Call::Take(_) | Call::Peek(_) | Call::Reserve(..) => {}
                Call::Refund(_) | Call::Absorb(_) | Call::Reset => denied.forget(&name),
            }
        }
        let args = match call {
            Call::Take(1) => tuned.take_one.clone(),
            call => Args::of(&tuned.algorithm, call),
        };
        let state = match tuned.batch.call(Asked { key: name, args }) {
            Ok(answer) => Waiting::For(answer),
            Err(error) => Waiting::Over(Some(Err(error))),
        };
        if inner.tuning.is_due(MonotonicClock.now()) {
            // Only where a call was made: no more is asked of a server that does not answer.
            if let (Waiting::For(_), Ok(runtime)) = (&state, Handle::try_current()) {
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
    fn hear(
        &self,
        algorithm: &A,
        call: Call,
        answer: &Answer,
        watch: Option<(String, Since)>,
    ) -> Heard {
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

impl<K: RedisKey + ?Sized, A: Scripted> KeyedLimiter<K> for RedisLimiter<A> {
    type Future = RedisFuture<A>;

    fn apply(&self, key: &K, op: Op) -> RedisFuture<A> {
        let call = match op {
            Op::Take(cost) => Call::Take(cost),
            Op::Peek(cost) => Call::Peek(cost),
            Op::Refund(cost) => Call::Refund(cost),
            Op::Absorb(cost) => Call::Absorb(cost),
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
        self.0.tuning.present().algorithm.quotas()
    }
}

impl<A: Scripted> IntoLimiter for RedisLimiter<A> {
    type Limiter = Self;

    fn into_limiter(self) -> Self {
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
