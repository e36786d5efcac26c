//! How connections are made.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisError, Value};

use super::cluster;

/// How long connecting to a server may take.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// Where connections come from.
pub(super) enum Source {
    Client(redis::Client),
    Connection(MultiplexedConnection),
    /// Asked for the primary on each attempt to connect. One task connects at a time, so the lock is
    /// never contended.
    Sentinel(Box<tokio::sync::Mutex<redis::sentinel::SentinelClient>>),
    Cluster(Box<redis::cluster::ClusterClient>),
}

/// A connection that any number of calls share.
#[derive(Clone)]
pub(super) enum RawConnection {
    Single(MultiplexedConnection),
    Cluster(redis::cluster_async::ClusterConnection),
}

impl Source {
    /// A cluster's client that never retries: it would send a call again after a connection broke,
    /// and the call might be counted twice. Redirections are followed in [`cluster`].
    pub(super) fn cluster(
        builder: redis::cluster::ClusterClientBuilder,
    ) -> Result<Self, RedisError> {
        let client = builder
            .retries(0)
            .connection_timeout(CONNECT_TIMEOUT)
            .build()?;
        Ok(Self::Cluster(Box::new(client)))
    }

    pub(super) const fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    pub(super) async fn connect(&self) -> Result<RawConnection, RedisError> {
        #[cfg(feature = "redis-tls")]
        install_crypto_provider();
        // Calls and attempts to connect have deadlines of their own.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        match self {
            Self::Client(client) => client
                .get_multiplexed_async_connection_with_config(&config)
                .await
                .map(RawConnection::Single),
            Self::Connection(connection) => Ok(RawConnection::Single(connection.clone())),
            Self::Sentinel(client) => client
                .lock()
                .await
                .get_async_connection_with_config(&config)
                .await
                .map(RawConnection::Single),
            Self::Cluster(client) => client
                .get_async_connection()
                .await
                .map(RawConnection::Cluster),
        }
    }
}

/// rustls needs one provider per process. A program that has not installed its own gets `ring`.
#[cfg(feature = "redis-tls")]
fn install_crypto_provider() {
    use rustls::crypto::{CryptoProvider, ring};

    if CryptoProvider::get_default().is_none() {
        // Fails only if another thread has installed one meanwhile.
        let _ = ring::default_provider().install_default();
    }
}

impl RawConnection {
    pub(super) async fn send(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        match self {
            Self::Single(connection) => connection
                .send_packed_command(command)
                .await?
                .extract_error(),
            Self::Cluster(connection) => cluster::send(connection, command).await,
        }
    }
}
