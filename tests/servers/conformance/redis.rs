//! Redis behind a proxy: a server, a cluster and sentinels.

use std::time::Duration;

use tower_throttle::algorithm::AnyAlgorithm;
use tower_throttle::store::{cas::Cas, redis::Redis};

use crate::proxy::{Harm, Protocol, Proxy};
use crate::redis_server::RedisServer;
use crate::suite::vectors::Replay;
use crate::suite::{Fault, OwnFault, Store};

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

    fn own_faults() -> Vec<OwnFault<Self>> {
        own::FAULTS.into()
    }

    fn limit(&self, policy: &str, algorithm: AnyAlgorithm, deadline: Duration) -> Self::Limit {
        let redis = Redis::open(&self.proxy.url()).expect("a url");
        limiter(redis, policy, algorithm, deadline)
    }

    /// The replay decides on the server without the proxy.
    fn replay(&self) -> Replay {
        Replay {
            arguments: vec!["--redis".to_owned(), self.server.url()],
            differences: crate::suite::vectors::OF_ONE_RATE.to_vec(),
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

    fn inflict(&mut self, fault: Fault) -> bool {
        inflict(fault, &mut self.server, &self.proxy);
        true
    }

    fn has_harmed(&self, fault: Fault) -> bool {
        has_harmed(fault, [&self.proxy])
    }

    fn heal(&mut self, fault: Fault) {
        assert!(self.has_harmed(fault), "{fault:?} harmed no reply");
        heal(fault, &mut self.server, &self.proxy);
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
crate::suite::check_vectors!(BehindProxy);

fn limiter(
    redis: Redis,
    policy: &str,
    algorithm: AnyAlgorithm,
    deadline: Duration,
) -> Cas<Redis, AnyAlgorithm> {
    let redis = redis.deadline(deadline).without_deny_cache();
    redis.limiter(policy, algorithm)
}

fn inflict(fault: Fault, server: &mut RedisServer, proxy: &Proxy) {
    match fault {
        Fault::Killed => server.kill(),
        Fault::Stopped => server.signal("STOP"),
        Fault::Restarted => {
            server.kill();
            server.restart();
        }
        fault => harm(fault, proxy),
    }
}

fn heal(fault: Fault, server: &mut RedisServer, proxy: &Proxy) {
    match fault {
        Fault::Killed => server.restart(),
        Fault::Stopped => server.signal("CONT"),
        _ => proxy.harms_none(),
    }
}

/// Harms every second reply.
fn harm(fault: Fault, proxy: &Proxy) {
    if let Some(harm) = harm_of(fault) {
        proxy.harms_every(harm, 2);
    }
}

/// Whether a fault of replies has harmed one, on one of the ways to the server.
fn has_harmed<'a>(fault: Fault, proxies: impl IntoIterator<Item = &'a Proxy>) -> bool {
    let harmed: u64 = proxies.into_iter().map(Proxy::harmed).sum();
    harm_of(fault).is_none() || harmed > 0
}

/// A cut does the same as a reset, and nothing sends a script twice.
fn harm_of(fault: Fault) -> Option<Harm> {
    let is_other = [Fault::Reset, Fault::Doubled].contains(&fault);
    fault.harm().filter(|_| !is_other)
}
