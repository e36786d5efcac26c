//! Redis behind a proxy.

use std::time::Duration;

use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::store::redis::{Redis, RedisLimiter};

use super::{Fault, Store};
use crate::proxy_server::{Harm, Proxy};
use crate::redis_server::RedisServer;

struct BehindProxy {
    server: RedisServer,
    proxy: Proxy,
}

impl Store for BehindProxy {
    type Limit = RedisLimiter<AnyAlgorithm>;

    const NANOS_PER_MOMENT: u64 = 1_000;

    fn start() -> Self {
        let server = RedisServer::start();
        let proxy = Proxy::before(&server);
        Self { server, proxy }
    }

    fn limit(&self, policy: &str, algorithm: AnyAlgorithm, deadline: Duration) -> Self::Limit {
        let redis = Redis::open(&self.proxy.url()).expect("a url");
        let redis = redis.deadline(deadline).without_deny_cache();
        redis.limiter(policy, algorithm)
    }

    fn inflict(&mut self, fault: Fault) -> bool {
        let harm = match fault {
            Fault::Lost => Harm::Swallow,
            Fault::Cut => Harm::Cut,
            Fault::CutInside => Harm::CutInside,
            Fault::Split => Harm::Split,
            Fault::Delayed => Harm::Delay(Duration::from_millis(20)),
            Fault::Killed => {
                self.server.kill();
                return true;
            }
            Fault::Stopped => {
                self.server.signal("STOP");
                return true;
            }
            Fault::Restarted => {
                self.server.kill();
                self.server.restart();
                return true;
            }
        };
        self.proxy.harms_every(harm, 2);
        true
    }

    fn heal(&mut self, fault: Fault) {
        match fault {
            Fault::Killed => self.server.restart(),
            Fault::Stopped => self.server.signal("CONT"),
            _ => self.proxy.harms_none(),
        }
    }
}

super::check!(BehindProxy);
