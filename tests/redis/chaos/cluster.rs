//! Changes of a cluster under load.

use std::time::Duration;

use redis::cluster::ClusterClientBuilder;
use tokio::time::Instant;
use tower_throttle::store::redis::Redis;

use super::connections::KILL;
use super::{Evidence, Fleet, Row, Stage};
use crate::proxy::{Harm, Proxy};
use crate::reached;
use crate::redis_cluster::{ask, behind_proxies, cluster, tell};
use crate::redis_server::RedisServer;
use crate::replicas::is_following;

fn fleet(stage: Stage, nodes: &[RedisServer]) -> Fleet {
    stage.fleet(&|| {
        let builder = ClusterClientBuilder::new(nodes.iter().map(RedisServer::url));
        Redis::with_cluster(builder).expect("urls")
    })
}

fn evidence<'a>(servers: Vec<&'a RedisServer>, happened: u64, what: &'static str) -> Evidence<'a> {
    let mut evidence = Evidence::new(servers[0], happened, what);
    evidence.servers = servers;
    // The task of the client, and those of its connections to each server.
    evidence.tasks = 1 + 4;
    evidence
}

/// Slots migrate from one master to another, key by key, among them that of the hot key.
pub(super) fn slots_move(stage: Stage) -> Row {
    let nodes = cluster(0);
    let slot: usize = redis::cmd("CLUSTER")
        .arg("KEYSLOT")
        .arg("{throttle:hot:key}")
        .query(&mut nodes[0].connection())
        .expect("a slot");
    let from = [5_461, 10_923].iter().filter(|end| slot >= **end).count();
    let (from, to) = (&nodes[from], &nodes[(from + 1) % 3]);
    let mut fleet = fleet(stage, &nodes);
    let mut moved = 0;
    // The slots around it that belong to the same master.
    let last = [5_460, 10_922, 16_383].into_iter().find(|end| slot <= *end);
    for slot in slot..=last.expect("its range").min(slot + 40) {
        moved += move_slot(slot, from, to, &nodes, &mut || {
            fleet.lasts_for(fleet.span() / 40);
        });
    }
    fleet.ends();
    let redirected = [errors(from, "MOVED"), errors(from, "ASK")];
    let happened = if moved == 0 || redirected.contains(&0) {
        0
    } else {
        redirected.iter().sum()
    };
    let servers = nodes.iter().collect();
    let mut evidence = evidence(servers, happened, "calls redirected");
    // One master is still connected to the other: it sent keys.
    evidence.others = 1;
    Row::of("cluster slots move", fleet, &evidence)
}

fn move_slot(
    slot: usize,
    from: &RedisServer,
    to: &RedisServer,
    nodes: &[RedisServer],
    meanwhile: &mut dyn FnMut(),
) -> usize {
    let slot = slot.to_string();
    let (from_id, to_id) = (ask(from, &["MYID"]), ask(to, &["MYID"]));
    tell(to, &["SETSLOT", &slot, "IMPORTING", &from_id]);
    tell(from, &["SETSLOT", &slot, "MIGRATING", &to_id]);
    let mut moved = 0;
    let mut connection = from.connection();
    loop {
        let keys: Vec<String> = redis::cmd("CLUSTER")
            .arg("GETKEYSINSLOT")
            .arg(&slot)
            .arg(10)
            .query(&mut connection)
            .expect("keys");
        if keys.is_empty() {
            break;
        }
        let mut migrate = redis::cmd("MIGRATE");
        migrate.arg("127.0.0.1").arg(to.port()).arg("").arg(0);
        migrate.arg(1_000).arg("KEYS").arg(&keys);
        migrate.exec(&mut connection).expect("moved");
        moved += keys.len();
    }
    // Both serve the slot for a while: new keys already belong to the other one.
    meanwhile();
    for node in [to, from].into_iter().chain(nodes) {
        tell(node, &["SETSLOT", &slot, "NODE", &to_id]);
    }
    moved
}

/// How often a server has replied with an error.
fn errors(server: &RedisServer, code: &str) -> u64 {
    let info: String = redis::cmd("INFO")
        .arg("errorstats")
        .query(&mut server.connection())
        .expect("statistics");
    let start = format!("errorstat_{code}:count=");
    info.lines()
        .find_map(|line| line.strip_prefix(&start))
        .map_or(0, |count| count.trim().parse().expect("a number"))
}

pub(super) fn connections_killed(stage: Stage) -> Row {
    let nodes = cluster(0);
    let mut fleet = fleet(stage, &nodes);
    let mut connections: Vec<_> = nodes.iter().map(RedisServer::connection).collect();
    let mut killed = 0;
    let mut turn = 0;
    fleet.lasts_with(Duration::from_millis(50), || {
        turn += 1;
        let mut kill = redis::cmd(KILL[0]);
        let connection = &mut connections[turn % 3];
        let count: u64 = kill.arg(&KILL[1..]).query(connection).expect("done");
        killed += count;
    });
    drop(connections);
    fleet.ends();
    let servers = nodes.iter().collect();
    let evidence = evidence(servers, killed, "connections killed");
    Row::of("cluster CLIENT KILL", fleet, &evidence)
}

/// Each master is behind a proxy, which cuts connections after calls were executed.
pub(super) fn replies_cut(stage: Stage) -> Row {
    let nodes = cluster(0);
    let proxies = behind_proxies(&nodes);
    let mut fleet = stage.fleet(&|| {
        let builder = ClusterClientBuilder::new(proxies.iter().map(Proxy::url));
        Redis::with_cluster(builder).expect("urls")
    });
    for proxy in &proxies {
        proxy.harms_every(Harm::Cut, 40);
    }
    fleet.lasts();
    for proxy in &proxies {
        proxy.harms_none();
    }
    fleet.ends();
    let cut = proxies.iter().map(Proxy::harmed).sum();
    let evidence = evidence(nodes.iter().collect(), cut, "replies cut");
    Row::of("cluster replies cut", fleet, &evidence)
}

/// The last of four nodes becomes the replica of the first.
fn with_replica() -> Vec<RedisServer> {
    let nodes = cluster(1);
    let id = ask(&nodes[0], &["MYID"]);
    tell(&nodes[3], &["REPLICATE", &id]);
    reached("the replica follows", || is_following(&nodes[3]));
    // The other nodes have to know it too, or they elect no master.
    reached("the other nodes know it", || {
        let replica = |node| ask(node, &["NODES"]).contains(&format!("slave {id}"));
        nodes.iter().all(replica)
    });
    nodes
}

pub(super) fn master_killed(stage: Stage) -> Row {
    let mut nodes = with_replica();
    let mut fleet = fleet(stage, &nodes);
    let begun = Instant::now();
    nodes[0].kill();
    replaced(&mut fleet, &nodes);
    let (failed, share) = (fleet.heard(""), fleet.answered_since(begun));
    let evidence = evidence(nodes[1..].iter().collect(), failed, "calls failed");
    Row::of("cluster kill -9", fleet, &evidence).answered(share, 50)
}

pub(super) fn master_stopped(stage: Stage) -> Row {
    let nodes = with_replica();
    let mut fleet = fleet(stage, &nodes);
    let begun = Instant::now();
    nodes[0].signal("STOP");
    replaced(&mut fleet, &nodes);
    let late = fleet.heard("no answer within");
    let share = fleet.answered_since(begun);
    let mut evidence = evidence(nodes[1..].iter().collect(), late, "calls late");
    // A new connection to the cluster tries the silent server for half a second.
    evidence.recovery = Duration::from_secs(2);
    Row::of("cluster SIGSTOP", fleet, &evidence).answered(share, 50)
}

/// The replica replaces the first node, and the other nodes know it.
fn replaced(fleet: &mut Fleet, nodes: &[RedisServer]) {
    let id = ask(&nodes[3], &["MYID"]);
    fleet.until("the replica is a master", |_| {
        let is_master = |node| {
            let all = ask(node, &["NODES"]);
            let line = all.lines().find(|line| line.starts_with(&id));
            line.is_some_and(|line| line.contains("master") && line.contains("0-5460"))
        };
        nodes[1..].iter().all(is_master)
    });
    fleet.loses();
    fleet.ends();
}
