//! A Redis cluster of three masters, each behind a proxy.

use std::time::Duration;

use redis::cluster::ClusterClientBuilder;
use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::store::{cas::Cas, redis::Redis};

use super::{has_harmed, heal, inflict, limiter};
use crate::proxy::Proxy;
use crate::redis_cluster::{announce, behind_proxies, cluster};
use crate::redis_server::RedisServer;
use crate::suite::{Fault, Store};

struct InCluster {
    nodes: Vec<RedisServer>,
    proxies: Vec<Proxy>,
}

impl Store for InCluster {
    type Limit = Cas<Redis, AnyAlgorithm>;

    fn start() -> Self {
        let nodes = cluster(0);
        let proxies = behind_proxies(&nodes);
        Self { nodes, proxies }
    }

    fn limit(&self, policy: &str, algorithm: AnyAlgorithm, deadline: Duration) -> Self::Limit {
        let builder = ClusterClientBuilder::new(self.proxies.iter().map(Proxy::url));
        let redis = Redis::with_cluster(builder).expect("urls");
        limiter(redis, policy, algorithm, deadline)
    }

    /// All masters at once, because any of them may have the key.
    fn inflict(&mut self, fault: Fault) -> bool {
        for (node, proxy) in self.nodes.iter_mut().zip(&self.proxies) {
            inflict(fault, node, proxy);
            if fault == Fault::Restarted {
                announce(node, proxy);
            }
        }
        true
    }

    fn has_harmed(&self, fault: Fault) -> bool {
        has_harmed(fault, &self.proxies)
    }

    fn heal(&mut self, fault: Fault) {
        assert!(self.has_harmed(fault), "{fault:?} harmed no reply");
        for (node, proxy) in self.nodes.iter_mut().zip(&self.proxies) {
            heal(fault, node, proxy);
            if fault == Fault::Killed {
                announce(node, proxy);
            }
        }
    }
}

crate::suite::check!(InCluster);
