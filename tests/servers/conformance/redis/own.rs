//! Faults that only Redis has: `tests/redis/faults.rs` has the error of each.

use redis::cmd;
use test_support::redis_server::{RedisServer, reached};
use test_support::replicas::{is_primary, replica, replication};

use super::BehindProxy;
use crate::suite::Fault;

fn tell(server: &RedisServer, words: &[&str]) {
    let mut command = cmd(words[0]);
    command.arg(&words[1..]);
    command.exec(&mut server.connection()).expect("done");
}

fn nothing(_: &mut BehindProxy) {}

/// The names of all values.
fn keys(server: &RedisServer) -> Vec<String> {
    let keys = cmd("KEYS").arg("*").query(&mut server.connection());
    keys.expect("names")
}

/// The address leads to the second server, and open connections end.
fn moves(store: &mut BehindProxy) {
    let second = store.second.as_ref().expect("a second server");
    store.proxy.leads_to(second.port());
    store.proxy.cuts_all();
}

type Own = Fault<BehindProxy>;

pub(super) fn faults() -> [Own; 13] {
    [
        Own::new(
            "SCRIPT FLUSH",
            |it| tell(&it.server, &["SCRIPT", "FLUSH"]),
            nothing,
        ),
        Own::new("FLUSHALL", |it| tell(&it.server, &["FLUSHALL"]), nothing).losing(true),
        Own::new("CLIENT KILL", kill, kill),
        Own::new(
            "CLIENT PAUSE",
            |it| tell(&it.server, &["CLIENT", "PAUSE", "60000", "WRITE"]),
            |it| tell(&it.server, &["CLIENT", "UNPAUSE"]),
        )
        .failing("no decision within"),
        Own::new(
            "OOM",
            |it| tell(&it.server, &["CONFIG", "SET", "maxmemory", "1"]),
            |it| tell(&it.server, &["CONFIG", "SET", "maxmemory", "0"]),
        )
        .failing("maxmemory"),
        Own::new(
            "NOPERM",
            |it| tell(&it.server, &["ACL", "SETUSER", "default", "-@scripting"]),
            |it| tell(&it.server, &["ACL", "SETUSER", "default", "+@all"]),
        )
        .failing("let this user run EVAL"),
        Own::new(
            "READONLY",
            |it| tell(&it.server, &["REPLICAOF", "127.0.0.1", "1"]),
            |it| tell(&it.server, &["REPLICAOF", "NO", "ONE"]),
        )
        .failing("read only replica"),
        Own::new("another type", lists, without_lists)
            .failing("not a string")
            .losing(true),
        Own::new("LOADING", loads, |it| {
            tell(&it.server, &["CONFIG", "SET", "key-load-delay", "0"]);
        })
        .failing("loading the dataset"),
        Own::new(
            "a silent connection",
            |it| it.proxy.is_silent(true),
            |it| it.proxy.is_silent(false),
        )
        .failing("no decision within"),
        Own::new(
            "the address of another server",
            |it| {
                it.second = Some(RedisServer::start());
                moves(it);
            },
            nothing,
        )
        .losing(true),
        Own::new("FAILOVER", hands_over, moves).failing("read only replica"),
        Own::new("a replica that lacks the last calls", cuts_replica, nothing).losing(true),
    ]
}

fn kill(store: &mut BehindProxy) {
    tell(
        &store.server,
        &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
    );
}

/// Each value becomes a list, at one moment: a machine may write meanwhile.
fn lists(store: &mut BehindProxy) {
    for key in keys(&store.server) {
        tell(&store.server, &["RPUSH", "list", "not ours"]);
        tell(&store.server, &["RENAME", "list", &key]);
    }
}

fn without_lists(store: &mut BehindProxy) {
    for key in keys(&store.server) {
        let kind = cmd("TYPE").arg(&key).query(&mut store.server.connection());
        let kind: String = kind.expect("a type");
        if kind == "list" {
            tell(&store.server, &["DEL", &key]);
        }
    }
}

/// The server loads so many keys that it takes until the fault is over.
fn loads(store: &mut BehindProxy) {
    let set = |name, value| tell(&store.server, &["CONFIG", "SET", name, value]);
    set("loading-process-events-interval-bytes", "1024");
    tell(&store.server, &["DEBUG", "POPULATE", "20000"]);
    set("key-load-delay", "1000");
    let mut other = store.server.connection();
    std::thread::spawn(move || cmd("DEBUG").arg("RELOAD").exec(&mut other));
}

/// The replica is promoted in order: nothing is lost, no connection ends, and the address still leads to the old
/// primary.
fn hands_over(store: &mut BehindProxy) {
    let second = replica(store.server.port());
    // The replica knows it before the primary does.
    reached("the primary knows its replica", || {
        let replica = replication(&store.server).remove("slave0");
        replica.is_some_and(|replica| replica.contains("state=online"))
    });
    let port = second.port().to_string();
    tell(&store.server, &["FAILOVER", "TO", "127.0.0.1", &port]);
    reached("the replica is the primary", || is_primary(&second));
    store.second = Some(second);
}

/// A replica that is promoted after its primary was killed, and had received nothing since it was started.
fn cuts_replica(store: &mut BehindProxy) {
    let second = replica(store.server.port());
    tell(&second, &["REPLICAOF", "NO", "ONE"]);
    tell(&second, &["FLUSHALL"]);
    store.server.kill();
    store.second = Some(second);
    moves(store);
}
