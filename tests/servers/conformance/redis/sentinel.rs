//! A Redis server and its replica, each behind a proxy, found through sentinels.

use std::time::Duration;

use redis::sentinel::{SentinelClient, SentinelServerType};
use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::store::{cas::Cas, redis::Redis};

use super::{harm, has_harmed, limiter};
use crate::proxy::{Protocol, Proxy};
use crate::redis_server::{RedisServer, reached};
use crate::replicas::{PRIMARY, follow, sentinels, sentinels_naming};
use crate::suite::{Fault, Store};

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
        limiter(redis, policy, algorithm, deadline)
    }

    /// The replica may lack the last decisions of a primary that stops.
    fn loses_states(fault: Fault) -> bool {
        fault.loses_states() || fault == Fault::Stopped
    }

    fn inflict(&mut self, fault: Fault) -> bool {
        match fault {
            Fault::Killed | Fault::Restarted => self.primary.kill(),
            Fault::Stopped => self.primary.signal("STOP"),
            fault => {
                harm(fault, &self.proxy);
                return true;
            }
        }
        self.fails_over();
        if fault == Fault::Restarted {
            self.heal(Fault::Killed);
        }
        true
    }

    fn has_harmed(&self, fault: Fault) -> bool {
        has_harmed(fault, [&self.proxy])
    }

    /// The old primary follows the new one, as the sentinels would let it a few seconds later.
    fn heal(&mut self, fault: Fault) {
        assert!(self.has_harmed(fault), "{fault:?} harmed no reply");
        match fault {
            Fault::Killed => self.primary.restart(),
            Fault::Stopped => self.primary.signal("CONT"),
            _ => return self.proxy.harms_none(),
        }
        follow(
            &self.primary,
            self.proxy_of_replica.port(),
            self.proxy.port(),
        );
    }
}

crate::suite::check_way!(BehindSentinels);
