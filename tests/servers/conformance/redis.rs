//! Redis behind a proxy: a server, a cluster and sentinels.

use std::{slice, time::Duration};

use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::store::{cas::Cas, redis::Redis};

use crate::proxy::{Protocol, Proxy};
use crate::redis_server::RedisServer;
use crate::suite::fleet::fault_of_many;
use crate::suite::vectors::Replay;
use crate::suite::{Fault, Servers, Store, usual};

mod cluster;
mod own;
mod sentinel;

struct BehindProxy {
    server: RedisServer,
    proxy: Proxy,
    /// A replica, or another server, to which the address may lead.
    second: Option<RedisServer>,
}

impl Store for BehindProxy {
    type Limit = Cas<Redis, AnyAlgorithm>;

    fn start() -> Self {
        let server = RedisServer::start();
        let proxy = Proxy::before(Protocol::Redis, server.port());
        Self {
            server,
            proxy,
            second: None,
        }
    }

    fn faults() -> Vec<Fault<Self>> {
        let mut faults = usual([true, false]);
        faults.extend(own::faults());
        faults
    }

    fn limit(&self, policy: &str, algorithm: AnyAlgorithm, deadline: Duration) -> Self::Limit {
        let redis = Redis::open(&self.proxy.url()).expect("a url");
        limiter(&redis, policy, algorithm, deadline)
    }

    /// The replay decides on the server without the proxy.
    fn replay(&self) -> Replay {
        Replay {
            arguments: vec!["--redis".to_owned(), self.server.url()],
            differences: crate::suite::vectors::OF_ONE_LAYOUT.to_vec(),
        }
    }

    /// A replay calls the server, and leaves nothing behind.
    fn fault_after_replay(&self) -> Option<String> {
        let connection = &mut self.server.connection();
        let left: u64 = redis::cmd("DBSIZE").query(connection).expect("a count");
        let mut info = redis::cmd("INFO");
        let info: String = info
            .arg("commandstats")
            .query(connection)
            .expect("statistics");
        let calls = info
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        let calls = calls.and_then(|rest| rest.split(',').next());
        let calls: u64 = calls.map_or(0, |calls| calls.parse().expect("a number"));
        (left > 0 || calls < 4_000).then(|| format!("{left} keys left after {calls} calls"))
    }
}

impl Servers for BehindProxy {
    fn proxies(&self) -> &[Proxy] {
        slice::from_ref(&self.proxy)
    }

    fn kill(&mut self) {
        self.server.kill();
    }

    fn restart(&mut self) {
        self.server.restart();
    }

    fn signal(&mut self, name: &str) {
        self.server.signal(name);
    }
}

impl crate::suite::fleet::Port for BehindProxy {
    type Port = Redis;

    fn port(&self) -> Redis {
        Redis::open(&self.proxy.url()).expect("a url")
    }
}

crate::suite::check!(BehindProxy);

crate::suite::fleet::check_fleet!(super::BehindProxy);

/// Shows promises 200, 201.
#[test]
fn machines_that_start_together_admit_the_limit() {
    for machines in [8, 64] {
        assert_eq!(fault_of_many::<BehindProxy, false>(machines), None);
        assert_eq!(fault_of_many::<BehindProxy, true>(machines), None);
    }
}

crate::suite::check_vectors!(BehindProxy);

fn limiter(
    redis: &Redis,
    policy: &str,
    algorithm: AnyAlgorithm,
    deadline: Duration,
) -> Cas<Redis, AnyAlgorithm> {
    let limit = redis.limiter(policy, algorithm);
    limit.deadline(deadline).without_deny_cache()
}
