//! The connections that keys are spread over.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{connection::Connection, source::Source};
use crate::error::ConfigError;

/// One or more connections to the same server: one may break while the others work.
#[derive(Clone, Debug)]
pub(super) struct ConnectionPool {
    connections: Arc<[Arc<Connection>]>,
    /// Whether calls on different keys may share a script call.
    batches: Arc<AtomicBool>,
    /// Assigns keys to connections.
    hasher: RandomState,
}

impl ConnectionPool {
    pub(super) fn new(source: Source) -> Self {
        Self {
            // The keys of a cluster are in different slots.
            batches: Arc::new(AtomicBool::new(!source.is_cluster())),
            connections: [Connection::new(&Arc::new(source))].into(),
            hasher: RandomState::new(),
        }
    }

    /// A pool of `size` new connections to the same server.
    pub(super) fn with_size(&self, size: usize) -> Result<Self, ConfigError> {
        let source = self.first().source();
        if size > 1 && !source.supports_pool() {
            return Err(ConfigError::Unsupported {
                what: "more than one connection to a cluster, or through an existing connection",
                instead: "give Redis a URL or a client, or leave a cluster to its own connections",
            });
        }
        Ok(Self {
            connections: (0..size).map(|_| Connection::new(source)).collect(),
            batches: Arc::new(AtomicBool::new(self.batches())),
            hasher: self.hasher.clone(),
        })
    }

    /// The same connections, on which no calls on different keys share a script call.
    pub(super) fn without_batching(&self) -> Self {
        Self {
            batches: Arc::default(),
            ..self.clone()
        }
    }

    /// Whether calls on different keys may share a script call.
    pub(super) fn batches(&self) -> bool {
        self.batches.load(Ordering::Relaxed)
    }

    /// Lets no more calls on different keys share a script call.
    pub(super) fn stop_batching(&self) {
        self.batches.store(false, Ordering::Relaxed);
    }

    /// The connection for commands that concern no key.
    pub(super) fn first(&self) -> &Arc<Connection> {
        &self.connections[0]
    }

    /// The connection of a key, always the same.
    pub(super) fn connection_of(&self, key: &str) -> &Arc<Connection> {
        &self.connections[self.index_of(key)]
    }

    /// The number of a key's connection, always the same.
    pub(super) fn index_of(&self, key: &str) -> usize {
        let count = self.connections.len();
        if count == 1 {
            return 0;
        }
        let hash = u128::from(self.hasher.hash_one(key));
        // The upper half of the product is uniform below `count`, without a division.
        usize::try_from((hash * count as u128) >> 64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each key has one connection, and keys are spread over all connections.
    #[test]
    fn a_key_has_one_connection_and_keys_are_spread_evenly() {
        let client = redis::Client::open("redis://127.0.0.1:1").expect("a url");
        let one = ConnectionPool::new(Source::Client(client));
        let pool = one.with_size(7).expect("a client");
        let mut keys = [0; 7];
        for key in 0..7_000 {
            let key = format!("key{key}");
            let index = pool.index_of(&key);
            assert_eq!(pool.clone().index_of(&key), index);
            assert_eq!(one.index_of(&key), 0);
            keys[index] += 1;
        }
        assert!(
            keys.iter().all(|count| (800..1_200).contains(count)),
            "{keys:?}"
        );
    }
}
