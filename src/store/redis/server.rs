//! A Redis server and its settings.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redis::IntoConnectionInfo as _;

use super::{
    connection::{Connection, STORE},
    source::Source,
};
use crate::algorithm::{Algorithm, IntoAlgorithm};
use crate::error::{ConfigError, expect_valid};
use crate::store::{
    cas::{Cas, Settings},
    remote::{Breakers, check_name},
};

/// A Redis server or cluster that stores limits.
///
/// Clones share the connection, which the first call makes.
#[derive(Clone, Debug)]
pub struct Redis {
    pub(super) connection: Arc<Connection>,
    /// Whether calls on different keys may share a script call.
    batches: Arc<AtomicBool>,
    pub(super) settings: Settings,
}

impl Redis {
    /// The server at a URL: `redis://user:password@host:6379/0`, `rediss://..` for TLS (with the
    /// feature `redis-tls`), `redis+unix:///path`.
    ///
    /// TLS is by rustls. A program that has installed no rustls `CryptoProvider` before the first
    /// connection gets that of ring as its default.
    ///
    /// # Errors
    /// If `url` is not the URL of a Redis server.
    ///
    /// ```
    /// use tower_throttle::store::redis::Redis;
    ///
    /// let error = Redis::open("http://localhost").unwrap_err();
    /// assert!(error.to_string().starts_with("Redis URL"), "{error}");
    /// ```
    pub fn open(url: &str) -> Result<Self, ConfigError> {
        let open = || {
            let info = url.into_connection_info()?;
            // A user may have no right to CLIENT.
            let settings = info.redis_settings().clone().set_skip_set_lib_name();
            redis::Client::open(info.set_redis_settings(settings))
        };
        let client = open().map_err(|error| wrong_address(&error))?;
        Ok(Self::with_client(client))
    }

    /// The server of a client.
    pub fn with_client(client: redis::Client) -> Self {
        Self::from_source(Source::Client(client))
    }

    /// An existing connection. It cannot be replaced if it breaks: prefer a URL or a client.
    pub fn with_connection(connection: redis::aio::MultiplexedConnection) -> Self {
        Self::from_source(Source::Connection(connection))
    }

    /// The primary that Redis Sentinel reports for each new connection: after a failover, calls go to
    /// the new primary. Build the client for
    /// [`SentinelServerType::Master`](redis::sentinel::SentinelServerType::Master).
    ///
    /// A primary that is cut off from the Sentinels continues as a primary until one reaches it.
    /// Requests that reach it meanwhile are counted there, and that count is lost.
    /// `min-replicas-to-write 1` in its configuration keeps that time short.
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
    pub fn with_sentinel(client: redis::sentinel::SentinelClient) -> Self {
        Self::from_source(Source::Sentinel(Box::new(tokio::sync::Mutex::new(client))))
    }

    /// A Redis Cluster.
    ///
    /// Retries are switched off, whatever the builder says: its client would also send a call again
    /// after the connection broke, and the call might be counted twice. Redirections to a slot that
    /// moved or is migrating are followed.
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
    pub fn with_cluster(
        builder: redis::cluster::ClusterClientBuilder,
    ) -> Result<Self, ConfigError> {
        let source = Source::cluster(builder).map_err(|error| wrong_address(&error))?;
        Ok(Self::from_source(source))
    }

    /// Whether calls on different keys may share a script call.
    pub(super) fn batches(&self) -> bool {
        self.batches.load(Ordering::Relaxed)
    }

    pub(super) fn stop_batching(&self) {
        self.batches.store(false, Ordering::Relaxed);
    }

    fn from_source(source: Source) -> Self {
        let breakers = Breakers::new(STORE, source.is_cluster());
        let settings = Settings {
            breakers: Arc::new(breakers),
            deadline: Duration::from_millis(50),
            has_own_threads: true,
            ..Settings::new(STORE)
        };
        Self {
            // The keys of a cluster are in different slots.
            batches: Arc::new(AtomicBool::new(!source.is_cluster())),
            connection: Connection::new(source),
            settings,
        }
    }

    /// A limit under a name of its own, by an algorithm or a tuple of them: the same as
    /// [`Cas::new`], which returns an error instead of a panic.
    ///
    /// The server decides every bucket, window, grid, line and log of up to 1,000 by a script. What has none, such as
    /// a [`Lockout`](crate::Lockout) or an algorithm of your own, is decided in this process, on a state that is
    /// loaded and swapped.
    ///
    /// # Panics
    /// If the name is not 1 to 64 letters, digits and any of `. _ -`, or if the algorithm is refused.
    #[track_caller]
    pub fn limiter<I>(&self, policy: &str, algorithm: I) -> Cas<Self, I::Algorithm>
    where
        I: IntoAlgorithm<Algorithm: Algorithm>,
    {
        expect_valid(Cas::new(self.clone(), policy, algorithm))
    }

    /// Sets the start of the names of all keys, by default `throttle`. Limits with the same prefix
    /// and policy are one limit.
    ///
    /// # Errors
    /// If it is not 1 to 64 letters, digits and any of `. _ -`.
    pub fn prefix(mut self, prefix: &str) -> Result<Self, ConfigError> {
        check_name("prefix", prefix)?;
        prefix.clone_into(&mut self.settings.prefix);
        Ok(self)
    }

    /// Sets how long a call may take, by default 50 ms. A call that takes longer is an error; it may
    /// have been counted.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.settings.deadline = deadline;
        self
    }
}

/// The error for an address. It does not repeat the URL, which may hold a password.
fn wrong_address(error: &redis::RedisError) -> ConfigError {
    let expected = format!("redis://user:password@host:port/database ({error})");
    ConfigError::syntax("Redis URL", "(not shown)", expected)
}
