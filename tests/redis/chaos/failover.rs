//! Failovers to another server.

use super::{Evidence, Row, Stage, command};
use crate::proxy::{Protocol, Proxy};
use crate::reached;
use crate::redis_server::RedisServer;
use crate::replicas::{is_primary, replica, replication};

/// A primary becomes the replica of an unreachable server for a while.
pub(super) fn read_only(stage: Stage) -> Row {
    let server = RedisServer::start();
    let mut unreachable = RedisServer::start();
    unreachable.kill();
    let mut fleet = stage.on(&server);
    let port = unreachable.port().to_string();
    command(&server, &["REPLICAOF", "127.0.0.1", &port]);
    fleet.lasts();
    let refused = fleet.heard("read only replica");
    command(&server, &["REPLICAOF", "NO", "ONE"]);
    fleet.ends();
    let evidence = Evidence::new(&server, refused, "replies of READONLY");
    Row::of("READONLY", fleet, &evidence).covered(true)
}

/// The replica is promoted in order: nothing is lost, and no connection ends.
pub(super) fn handed_over(stage: Stage) -> Row {
    let first = RedisServer::start();
    let second = replica(first.port());
    // The replica knows it before the primary does.
    reached("the primary knows its replica", || {
        let replica = replication(&first).remove("slave0");
        replica.is_some_and(|replica| replica.contains("state=online"))
    });
    let proxy = Proxy::before(Protocol::Redis, first.port());
    let mut fleet = stage.at(&proxy.url());
    let port = second.port().to_string();
    command(&first, &["FAILOVER", "TO", "127.0.0.1", &port]);
    fleet.until("the replica is the primary", |_| is_primary(&second));
    // For a while the address still leads to the old primary.
    fleet.lasts();
    let refused = fleet.heard("read only replica");
    proxy.leads_to(second.port());
    fleet.ends();
    let evidence = Evidence::new(&second, refused, "replies of READONLY");
    Row::of("FAILOVER with TCP up", fleet, &evidence).covered(true)
}

/// The replica had not received the last calls when it was promoted.
pub(super) fn cut_before(stage: Stage) -> Row {
    let mut first = RedisServer::start();
    let between = Proxy::before(Protocol::Bytes, first.port());
    let second = replica(between.port());
    let proxy = Proxy::before(Protocol::Redis, first.port());
    let mut fleet = stage.at(&proxy.url());
    between.leads_to(1);
    between.cuts_all();
    fleet.lasts();
    let (told, known) = (keys(&first), keys(&second));
    first.kill();
    command(&second, &["REPLICAOF", "NO", "ONE"]);
    fleet.loses();
    proxy.leads_to(second.port());
    proxy.cuts_all();
    fleet.ends();
    let lost = told.saturating_sub(known);
    let evidence = Evidence::new(&second, lost, "keys lost");
    Row::of("replica cut", fleet, &evidence)
}

fn keys(server: &RedisServer) -> u64 {
    redis::cmd("DBSIZE")
        .query(&mut server.connection())
        .expect("a count")
}

#[cfg(feature = "redis-sentinel")]
pub(super) use self::sentinel::{primary_killed, primary_stopped};

#[cfg(feature = "redis-sentinel")]
mod sentinel {
    use redis::sentinel::{SentinelClient, SentinelServerType};
    use tower_throttle::store::redis::Redis;

    use super::super::{Evidence, Fleet, Row, Stage};
    use super::RedisServer;
    use crate::replicas::{PRIMARY, replica, sentinels, sentinels_naming};

    fn fleet(stage: Stage, sentinels: &[RedisServer]) -> Fleet {
        stage.fleet(&|| {
            let urls = sentinels.iter().map(RedisServer::url).collect();
            let kind = SentinelServerType::Master;
            let client = SentinelClient::build(urls, String::from(PRIMARY), None, kind);
            Redis::with_sentinel(client.expect("urls"))
        })
    }

    fn evidence(second: &RedisServer, happened: u64) -> Evidence<'_> {
        let mut evidence = Evidence::new(second, happened, "calls failed");
        // A connection to the primary, and one to each sentinel.
        evidence.tasks = 4;
        // Each sentinel is connected to it.
        evidence.others = 3;
        evidence
    }

    pub(in super::super) fn primary_killed(stage: Stage) -> Row {
        let mut first = RedisServer::start();
        let second = replica(first.port());
        let sentinels = sentinels(first.port());
        let mut fleet = fleet(stage, &sentinels);
        first.kill();
        fleet.until("a sentinel reports the other server", |_| {
            sentinels_naming(&sentinels, second.port()) > 0
        });
        fleet.loses();
        fleet.ends();
        let refused = fleet.heard("refused") + fleet.heard("not found");
        let evidence = evidence(&second, refused);
        Row::of("Sentinel kill -9", fleet, &evidence).covered(true)
    }

    /// The primary is stopped. When it continues, it acts as a primary until a sentinel demotes it.
    pub(in super::super) fn primary_stopped(stage: Stage) -> Row {
        let first = RedisServer::start();
        let second = replica(first.port());
        let sentinels = sentinels(first.port());
        let mut fleet = fleet(stage, &sentinels);
        first.signal("STOP");
        fleet.until("the sentinels report the other server", |_| {
            sentinels_naming(&sentinels, second.port()) == 3
        });
        fleet.loses();
        fleet.ends();
        fleet.until("all machines have found it", |fleet| {
            fleet.is_answered_since(fleet.lost)
        });
        let late = fleet.heard("no answer within");
        first.signal("CONT");
        let evidence = evidence(&second, late);
        Row::of("Sentinel SIGSTOP", fleet, &evidence).covered(true)
    }
}
