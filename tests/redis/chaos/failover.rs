//! Failovers to another server.

use std::collections::HashMap;

use super::{Evidence, Row, Stage, command};
use crate::proxy_server::Proxy;
use crate::reached;
use crate::redis_server::RedisServer;

/// A replica of the server at this port.
pub(super) fn follower(port: u16) -> RedisServer {
    let server = RedisServer::with(&["--replicaof", "127.0.0.1", &port.to_string()]);
    reached("the replica follows", || is_following(&server));
    server
}

pub(super) fn is_following(server: &RedisServer) -> bool {
    replication(server)
        .get("master_link_status")
        .map(String::as_str)
        == Some("up")
}

fn is_primary(server: &RedisServer) -> bool {
    replication(server).get("role").map(String::as_str) == Some("master")
}

fn replication(server: &RedisServer) -> HashMap<String, String> {
    let info: String = redis::cmd("INFO")
        .arg("replication")
        .query(&mut server.connection())
        .expect("its role");
    info.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

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
    let second = follower(first.port());
    // The replica knows it before the primary does.
    reached("the primary knows its replica", || {
        let replica = replication(&first).remove("slave0");
        replica.is_some_and(|replica| replica.contains("state=online"))
    });
    let proxy = Proxy::before(&first);
    let mut fleet = stage.at(&proxy.url());
    let port = second.port().to_string();
    command(&first, &["FAILOVER", "TO", "127.0.0.1", &port]);
    fleet.until("the replica is the primary", |_| is_primary(&second));
    // For a while the address still leads to the old primary.
    fleet.lasts();
    let refused = fleet.heard("read only replica");
    proxy.leads_to(&second);
    fleet.ends();
    let evidence = Evidence::new(&second, refused, "replies of READONLY");
    Row::of("FAILOVER with TCP up", fleet, &evidence).covered(true)
}

/// The replica had not received the last calls when it was promoted.
pub(super) fn cut_before(stage: Stage) -> Row {
    let mut first = RedisServer::start();
    let between = Proxy::of_replica(&first);
    let second = follower(between.port());
    let proxy = Proxy::before(&first);
    let mut fleet = stage.at(&proxy.url());
    between.leads_nowhere();
    between.cuts_all();
    fleet.lasts();
    let (told, known) = (keys(&first), keys(&second));
    first.kill();
    command(&second, &["REPLICAOF", "NO", "ONE"]);
    fleet.loses();
    proxy.leads_to(&second);
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
    use super::{RedisServer, follower};
    use crate::reached;
    use crate::redis_server::Setup;

    const NAME: &str = "limits";

    /// Three sentinels of a primary.
    fn sentinels(primary: &RedisServer) -> Vec<RedisServer> {
        let watch = format!(
            "sentinel monitor {NAME} 127.0.0.1 {} 2\n\
             sentinel down-after-milliseconds {NAME} 500\n\
             sentinel failover-timeout {NAME} 4000\n",
            primary.port()
        );
        let all: Vec<_> = (0..3)
            .map(|_| Setup::default().sentinel(&watch).start())
            .collect();
        reached("the sentinels know each other and the replica", || {
            all.iter().all(|sentinel| {
                let info: String = redis::cmd("INFO")
                    .arg("sentinel")
                    .query(&mut sentinel.connection())
                    .expect("what it knows");
                info.contains("status=ok") && info.contains("slaves=1,sentinels=3")
            })
        });
        all
    }

    fn fleet(stage: Stage, sentinels: &[RedisServer]) -> Fleet {
        stage.fleet(&|| {
            let urls = sentinels.iter().map(RedisServer::url).collect();
            let kind = SentinelServerType::Master;
            let client = SentinelClient::build(urls, String::from(NAME), None, kind);
            Redis::with_sentinel(client.expect("urls"))
        })
    }

    /// Whether so many sentinels report this server as the primary.
    fn is_named(sentinels: &[RedisServer], server: &RedisServer, most: usize) -> bool {
        let names = |sentinel: &&RedisServer| {
            let (_, port): (String, u16) = redis::cmd("SENTINEL")
                .arg("GET-MASTER-ADDR-BY-NAME")
                .arg(NAME)
                .query(&mut sentinel.connection())
                .expect("an address");
            port == server.port()
        };
        sentinels.iter().filter(names).count() >= most
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
        let second = follower(first.port());
        let sentinels = sentinels(&first);
        let mut fleet = fleet(stage, &sentinels);
        first.kill();
        fleet.until("a sentinel reports the other server", |_| {
            is_named(&sentinels, &second, 1)
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
        let second = follower(first.port());
        let sentinels = sentinels(&first);
        let mut fleet = fleet(stage, &sentinels);
        first.signal("STOP");
        fleet.until("the sentinels report the other server", |_| {
            is_named(&sentinels, &second, 3)
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
