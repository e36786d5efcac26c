//! A Redis cluster of three masters, each behind a proxy.

use std::time::Duration;

use redis::cluster::ClusterClientBuilder;
use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::store::{cas::Cas, redis::Redis};

use super::limiter;
use crate::proxy::Proxy;
use crate::redis_cluster::{announce, behind_proxies, cluster};
use crate::redis_server::RedisServer;
use crate::suite::{Fault, Servers, Store, usual};

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
        limiter(&redis, policy, algorithm, deadline)
    }

    fn faults() -> Vec<Fault<Self>> {
        usual([true, false])
    }
}

/// All masters at once, because any of them may have the key.
impl Servers for InCluster {
    fn proxies(&self) -> &[Proxy] {
        &self.proxies
    }

    fn kill(&mut self) {
        self.nodes.iter_mut().for_each(RedisServer::kill);
    }

    fn restart(&mut self) {
        for (node, proxy) in self.nodes.iter_mut().zip(&self.proxies) {
            node.restart();
            announce(node, proxy);
        }
    }

    fn signal(&mut self, name: &str) {
        self.nodes.iter().for_each(|node| node.signal(name));
    }
}

crate::suite::check!(InCluster);
