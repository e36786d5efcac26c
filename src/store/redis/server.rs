//! The server, and how it is asked.

use std::time::Duration;

use super::{
    backend::RedisLimiter,
    breaker::BreakerCounts,
    connection::Connector,
    deny_cache::DenyCache,
    live_policy::LivePolicy,
    pool::ConnectionPool,
    script::{Scripted, sealed::Script as _},
};
use crate::algorithm::{Algorithm, IntoAlgorithm};
use crate::error::{ConfigError, StoreError, expect_valid};

/// A Redis server, or a cluster of them, to keep limits in.
///
/// Clones share the connection, or [several](Self::connections). It is made when the first call needs
/// it.
#[derive(Clone, Debug)]
pub struct Redis {
    links: ConnectionPool,
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
            field: "Redis URL",
            text: "(not shown)".to_owned(),
            expected: format!("redis://user:password@host:port/database ({error})"),
        })?;
        Ok(Self::with_client(client))
    }

    /// The server of a client.
    pub fn with_client(client: redis::Client) -> Self {
        Self::with(Connector::Client(client))
    }

    /// A connection that is there already. It cannot be replaced if it breaks; prefer a URL or a
    /// client.
    pub fn with_connection(connection: redis::aio::MultiplexedConnection) -> Self {
        Self::with(Connector::Connection(connection))
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
        Self::with(Connector::Sentinel(Box::new(tokio::sync::Mutex::new(
            client,
        ))))
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
        let source = Connector::cluster(builder).map_err(|error| ConfigError::Syntax {
            field: "Redis URL",
            text: "(not shown)".to_owned(),
            expected: format!("redis://user:password@host:port ({error})"),
        })?;
        Ok(Self::with(source))
    }

    fn with(source: Connector) -> Self {
        Self {
            links: ConnectionPool::new(source),
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

    /// Spreads the keys over so many connections, one where nothing is said. All calls of a key go
    /// by the same one.
    ///
    /// One connection carries what a server decides. More are of use where a machine asks so much
    /// that reading and writing fill one of its cores, or where a proxy in between does; the calls
    /// in flight at a time are then gathered in smaller groups. `cargo run --release -p compare --
    /// redis` measures both.
    ///
    /// A limiter that was made before keeps the connections that it has.
    ///
    /// # Errors
    /// If it is not 1 to 64, or other than 1 of a cluster, whose client has connections to all
    /// servers, or of a connection that was there already.
    ///
    /// ```
    /// use tower_throttle::store::redis::Redis;
    ///
    /// let redis = Redis::open("redis://127.0.0.1:6379")?.connections(4)?;
    /// assert!(redis.connections(0).is_err());
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn connections(mut self, count: usize) -> Result<Self, ConfigError> {
        if !(1..=64).contains(&count) {
            let allowed = "a number from 1 to 64";
            return Err(ConfigError::out_of_range("connections", count, allowed));
        }
        self.links = self.links.again(count)?;
        Ok(self)
    }

    /// Asks Redis about every request, also about those that are known to be denied.
    ///
    /// Where nothing is said a denial is remembered until its exact `retry_after`, for at most 10
    /// seconds, and the same request of the same key is denied without asking: whoever hammers
    /// costs Redis next to nothing. Giving something back, or a reset, through this limiter or its
    /// clones ends that at once; through another machine it is seen when the denial ends.
    #[must_use]
    pub const fn without_deny_cache(mut self) -> Self {
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
        if !self.links.first().supports_batching() {
            return Ok(None);
        }
        let mut info = redis::cmd("INFO");
        info.arg("memory");
        let limit = Duration::from_secs(2).max(self.deadline);
        let value = tokio::time::timeout(limit, self.links.first().send(&info))
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
        self.links.breaker()
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
        expect_valid(self.try_limiter(policy, algorithm))
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
        let algorithm = algorithm.into_algorithm();
        algorithm.validate()?;
        let algorithm = algorithm.prepared()?;
        let key = format!("{{{}:{policy}}}:quota", self.prefix);
        let tuning = LivePolicy::new(&self.links, self.deadline, key, algorithm);
        let start = format!("{{{}:{policy}:", self.prefix);
        let denied = self.remembers.then(DenyCache::new);
        Ok(RedisLimiter::new(start, denied, tuning))
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
