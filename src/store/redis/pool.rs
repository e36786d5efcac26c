//! The connections that the keys are spread over.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use super::{
    breaker::BreakerCounts,
    connection::{Connection, Connector},
};
use crate::error::ConfigError;

/// At least one. Each has a breaker of its own, for one may break where the others do not.
#[derive(Clone, Debug)]
pub(super) struct ConnectionPool {
    links: Arc<[Arc<Connection>]>,
    /// By which a key finds its connection.
    hasher: RandomState,
}

impl ConnectionPool {
    pub(super) fn new(source: Connector) -> Self {
        Self {
            links: [Connection::new(Arc::new(source))].into(),
            hasher: RandomState::new(),
        }
    }

    /// So many to the same server.
    pub(super) fn again(&self, count: usize) -> Result<Self, ConfigError> {
        let source = self.first().source();
        if count > 1 && !source.supports_pool() {
            return Err(ConfigError::Unsupported {
                what: "several connections of a cluster, or of a connection that is there already",
                instead: "give Redis a URL or a client, or leave a cluster to its own connections",
            });
        }
        let links = (0..count).map(|_| Connection::new(Arc::clone(source)));
        Ok(Self {
            links: links.collect(),
            hasher: self.hasher.clone(),
        })
    }

    /// The one for what is about no key.
    pub(super) fn first(&self) -> &Arc<Connection> {
        &self.links[0]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.links.iter()
    }

    /// Which one of `count` is for a key, always the same.
    pub(super) fn place(&self, key: &str, count: usize) -> usize {
        if count == 1 {
            return 0;
        }
        let hash = u128::from(self.hasher.hash_one(key));
        // The upper half of the product: a share of `count`, without a division.
        usize::try_from((hash * count as u128) >> 64).unwrap_or(0)
    }

    /// Of all of them together.
    pub(super) fn breaker(&self) -> BreakerCounts {
        let mut sum = BreakerCounts::default();
        for counts in self.links.iter().map(|link| link.breaker()) {
            sum.is_open |= counts.is_open;
            sum.opened += counts.opened;
            sum.probes += counts.probes;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_connection_and_keys_are_spread_evenly() {
        let client = redis::Client::open("redis://127.0.0.1:1").expect("a url");
        let links = ConnectionPool::new(Connector::Client(client));
        let mut keys = [0; 7];
        for key in 0..7_000 {
            let key = format!("key{key}");
            let place = links.place(&key, 7);
            assert_eq!(links.clone().place(&key, 7), place);
            assert_eq!(links.place(&key, 1), 0);
            keys[place] += 1;
        }
        assert!(
            keys.iter().all(|count| (800..1_200).contains(count)),
            "{keys:?}"
        );
    }
}
