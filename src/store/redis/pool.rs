//! The connections that keys are spread over.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use super::{connection::Connection, source::Source};
use crate::error::ConfigError;
use crate::store::remote::{BreakerConfig, BreakerCounts};

/// One or more connections to the same server, each with its own breaker: one may break while the
/// others work.
#[derive(Clone, Debug)]
pub(super) struct ConnectionPool {
    connections: Arc<[Arc<Connection>]>,
    breaker: BreakerConfig,
    /// Whether calls may be batched.
    batches: bool,
    /// Assigns keys to connections.
    hasher: RandomState,
}

impl ConnectionPool {
    pub(super) fn new(source: Source) -> Self {
        let breaker = BreakerConfig::default();
        Self {
            connections: [Connection::new(Arc::new(source), breaker, true)].into(),
            breaker,
            batches: true,
            hasher: RandomState::new(),
        }
    }

    /// A pool of `size` new connections to the same server.
    pub(super) fn with_size(&self, size: usize) -> Result<Self, ConfigError> {
        if size > 1 && !self.first().source().supports_pool() {
            return Err(ConfigError::Unsupported {
                what: "more than one connection to a cluster, or through an existing connection",
                instead: "give Redis a URL or a client, or leave a cluster to its own connections",
            });
        }
        Ok(self.rebuild(size, self.breaker, self.batches))
    }

    /// A pool of as many new connections with another breaker.
    pub(super) fn with_breaker(&self, breaker: BreakerConfig) -> Self {
        self.rebuild(self.connections.len(), breaker, self.batches)
    }

    /// A pool of as many new connections that send every call by itself.
    pub(super) fn without_batching(&self) -> Self {
        self.rebuild(self.connections.len(), self.breaker, false)
    }

    fn rebuild(&self, size: usize, breaker: BreakerConfig, batches: bool) -> Self {
        let source = self.first().source();
        let connection = |_| Connection::new(Arc::clone(source), breaker, batches);
        Self {
            connections: (0..size).map(connection).collect(),
            breaker,
            batches,
            hasher: self.hasher.clone(),
        }
    }

    pub(super) const fn breaker_config(&self) -> BreakerConfig {
        self.breaker
    }

    /// The connection for commands that concern no key.
    pub(super) fn first(&self) -> &Arc<Connection> {
        &self.connections[0]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.connections.iter()
    }

    /// The connection of a key, always the same.
    pub(super) fn connection_of(&self, key: &str) -> &Arc<Connection> {
        &self.connections[self.index_for(key, self.connections.len())]
    }

    /// The index below `count` of a key's connection, always the same.
    pub(super) fn index_for(&self, key: &str, count: usize) -> usize {
        if count == 1 {
            return 0;
        }
        let hash = u128::from(self.hasher.hash_one(key));
        // The upper half of the product is uniform below `count`, without a division.
        usize::try_from((hash * count as u128) >> 64).unwrap_or(0)
    }

    /// The counts of all breakers together.
    pub(super) fn breaker_counts(&self) -> BreakerCounts {
        let mut sum = BreakerCounts::default();
        for connection in self.iter() {
            sum = sum.plus(connection.breakers().counts());
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each key has one connection, and keys are spread over all connections.
    #[test]
    fn a_key_has_one_connection_and_keys_are_spread_evenly() {
        let client = redis::Client::open("redis://127.0.0.1:1").expect("a url");
        let pool = ConnectionPool::new(Source::Client(client));
        let mut keys = [0; 7];
        for key in 0..7_000 {
            let key = format!("key{key}");
            let index = pool.index_for(&key, 7);
            assert_eq!(pool.clone().index_for(&key, 7), index);
            assert_eq!(pool.index_for(&key, 1), 0);
            keys[index] += 1;
        }
        assert!(
            keys.iter().all(|count| (800..1_200).contains(count)),
            "{keys:?}"
        );
    }
}
