//! Faults between machines and a server.

use std::time::Duration;

use super::fleet::DEADLINE;
use super::{Evidence, Fleet, Row, Stage, command, told};
use crate::proxy::{Harm, Protocol, Proxy};
use crate::redis_server::RedisServer;

pub(super) const KILL: [&str; 6] = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];

pub(super) fn killed(stage: Stage) -> Row {
    let server = RedisServer::start();
    let mut fleet = stage.on(&server);
    let mut connection = server.connection();
    let mut killed = 0;
    fleet.lasts_with(Duration::from_millis(50), || {
        let mut kill = redis::cmd(KILL[0]);
        let count: u64 = kill.arg(&KILL[1..]).query(&mut connection).expect("done");
        killed += count;
    });
    drop(connection);
    fleet.ends();
    let evidence = Evidence::new(&server, killed, "connections killed");
    Row::of("CLIENT KILL", fleet, &evidence)
}

pub(super) fn without_permission(stage: Stage) -> Row {
    let server = RedisServer::start();
    let mut fleet = stage.on(&server);
    command(&server, &["ACL", "SETUSER", "default", "-@scripting"]);
    fleet.lasts();
    let refused = fleet.heard("let this user run EVAL");
    command(&server, &["ACL", "SETUSER", "default", "+@all"]);
    fleet.ends();
    let evidence = Evidence::new(&server, refused, "replies of NOPERM");
    Row::of("NOPERM", fleet, &evidence).covered(false)
}

/// Sends commands to a server by a connection that stays open until it is dropped.
fn guest(server: &RedisServer) -> impl FnMut(&[&str]) + use<> {
    let mut guest = server.connection();
    move |words| {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]).exec(&mut guest).expect("done");
    }
}

pub(super) fn without_password(stage: Stage) -> Row {
    let server = RedisServer::start();
    let mut fleet = stage.on(&server);
    let mut has = guest(&server);
    // Only new connections have to authenticate.
    has(&["CONFIG", "SET", "requirepass", "right"]);
    has(&KILL);
    fleet.lasts();
    let refused = fleet.heard("user or password");
    has(&["CONFIG", "SET", "requirepass", ""]);
    drop(has);
    fleet.ends();
    let evidence = Evidence::new(&server, refused, "calls without a password");
    Row::of("wrong password", fleet, &evidence)
}

pub(super) fn without_room(stage: Stage) -> Row {
    let server = RedisServer::start();
    let mut fleet = stage.on(&server);
    let mut has = guest(&server);
    has(&["CONFIG", "SET", "maxclients", "1"]);
    has(&KILL);
    fleet.lasts();
    has(&["CONFIG", "SET", "maxclients", "100"]);
    drop(has);
    fleet.ends();
    let refused = told(&server, "rejected_connections");
    let evidence = Evidence::new(&server, refused, "connections refused");
    Row::of("maxclients", fleet, &evidence).covered(true)
}

/// Harms one in `every` replies while the fault lasts.
fn harmed(
    stage: Stage,
    fault: &'static str,
    what: &'static str,
    (server, harm, every): (&RedisServer, Harm, u64),
) -> Row {
    let proxy = Proxy::before(Protocol::Redis, server.port());
    let mut fleet = stage.at(&proxy.url());
    proxy.harms_every(harm, every);
    fleet.lasts();
    proxy.harms_none();
    fleet.ends();
    let evidence = Evidence::new(server, proxy.harmed(), what);
    Row::of(fault, fleet, &evidence)
}

pub(super) fn replies_lost(stage: Stage) -> Row {
    let server = RedisServer::start();
    let how = (&server, Harm::Lost, 40);
    harmed(stage, "replies lost", "replies lost", how)
}

pub(super) fn replies_cut(stage: Stage) -> Row {
    replies_cut_of(stage, &RedisServer::start())
}

pub(super) fn replies_cut_of(stage: Stage, server: &RedisServer) -> Row {
    let how = (server, Harm::CutInside, 40);
    harmed(stage, "replies cut", "replies cut", how)
}

pub(super) fn replies_split(stage: Stage) -> Row {
    let server = RedisServer::start();
    let how = (&server, Harm::Split, 1);
    harmed(stage, "replies split", "replies split", how)
}

pub(super) fn replies_late(stage: Stage) -> Row {
    let server = RedisServer::start();
    let how = (&server, Harm::Delay(Duration::from_secs(1)), 30);
    harmed(stage, "replies late", "replies late", how)
}

/// Connections are accepted, but no reply arrives.
pub(super) fn silent(stage: Stage) -> Row {
    let server = RedisServer::start();
    let proxy = Proxy::before(Protocol::Redis, server.port());
    let mut fleet = stage.at(&proxy.url());
    proxy.is_silent(true);
    fleet.lasts();
    let late = fleet.heard("no answer within");
    proxy.is_silent(false);
    fleet.ends();
    let mut evidence = Evidence::new(&server, late, "calls late");
    // A connection is closed after three calls without a reply.
    evidence.recovery += 3 * DEADLINE;
    Row::of("silent connection", fleet, &evidence).covered(true)
}

/// The same address leads to another, empty server; connections to the first one end.
pub(super) fn address_flips(stage: Stage) -> Row {
    let (first, second) = (RedisServer::start(), RedisServer::start());
    let proxy = Proxy::before(Protocol::Redis, first.port());
    let mut fleet: Fleet = stage.at(&proxy.url());
    fleet.loses();
    proxy.leads_to(second.port());
    let cut = proxy.cuts_all();
    fleet.ends();
    let evidence = Evidence::new(&second, cut, "connections moved");
    Row::of("address flips", fleet, &evidence)
}
