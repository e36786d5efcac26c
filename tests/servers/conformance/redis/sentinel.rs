//! A Redis server and its replica, each behind a proxy, found through sentinels.

use std::{slice, time::Duration};

use redis::sentinel::{SentinelClient, SentinelServerType};
use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::store::{cas::Cas, redis::Redis};

use super::limiter;
use crate::proxy::{Protocol, Proxy};
use crate::redis_server::{RedisServer, reached};
use crate::replicas::{PRIMARY, follow, sentinels, sentinels_naming};
use crate::suite::{Fault, Servers, Store, usual};

struct BehindSentinels {
    sentinels: Vec<RedisServer>,
    primary: RedisServer,
    proxy: Proxy,
    _replica: RedisServer,
    proxy_of_replica: Proxy,
}

impl BehindSentinels {
    /// The sentinels promote the replica.
    fn fails_over(&self) {
        let port = self.proxy_of_replica.port();
        reached("the sentinels report the replica", || {
            sentinels_naming(&self.sentinels, port) == self.sentinels.len()
        });
    }

    /// The old primary follows the new one, as the sentinels would let it a few seconds later.
    fn follows(&self) {
        let port = self.proxy_of_replica.port();
        follow(&self.primary, port, self.proxy.port());
    }
}

impl Store for BehindSentinels {
    type Limit = Cas<Redis, AnyAlgorithm>;

    fn start() -> Self {
        let primary = RedisServer::start();
        let proxy = Proxy::before(Protocol::Redis, primary.port());
        let replica = RedisServer::start();
        let proxy_of_replica = Proxy::before(Protocol::Redis, replica.port());
        follow(&replica, proxy.port(), proxy_of_replica.port());
        Self {
            sentinels: sentinels(proxy.port()),
            primary,
            proxy,
            _replica: replica,
            proxy_of_replica,
        }
    }

    fn limit(&self, policy: &str, algorithm: AnyAlgorithm, deadline: Duration) -> Self::Limit {
        let urls = self.sentinels.iter().map(RedisServer::url).collect();
        let kind = SentinelServerType::Master;
        let client = SentinelClient::build(urls, String::from(PRIMARY), None, kind);
        let redis = Redis::with_sentinel(client.expect("urls"));
        limiter(&redis, policy, algorithm, deadline)
    }

    fn faults() -> Vec<Fault<Self>> {
        usual([true; 2])
    }
}

impl Servers for BehindSentinels {
    fn proxies(&self) -> &[Proxy] {
        slice::from_ref(&self.proxy)
    }

    fn kill(&mut self) {
        self.primary.kill();
        self.fails_over();
    }

    fn restart(&mut self) {
        self.primary.restart();
        self.follows();
    }

    fn signal(&mut self, name: &str) {
        self.primary.signal(name);
        match name {
            "STOP" => self.fails_over(),
            _ => self.follows(),
        }
    }
}

crate::suite::check_way!(BehindSentinels);
