//! Faults of a server.

use std::time::Duration;

use super::{Evidence, Row, Stage, command, told};
use crate::calls_of;
use crate::redis_server::RedisServer;

pub(super) fn killed_without_file(stage: Stage) -> Row {
    let mut server = RedisServer::start();
    let mut fleet = stage.on(&server);
    server.kill();
    fleet.lasts();
    let refused = fleet.heard("refused");
    fleet.loses();
    server.restart();
    fleet.ends();
    let evidence = Evidence::new(&server, refused, "calls refused");
    Row::of("kill -9 without a file", fleet, &evidence).covered(true)
}

pub(super) fn killed_with_file(stage: Stage) -> Row {
    // Written before the reply, which suffices if only the process ends. Not synced: the speed of
    // the disk is not tested.
    let file = ["--appendonly", "yes", "--appendfsync", "no"];
    let mut server = RedisServer::with(&file);
    let mut fleet = stage.on(&server);
    server.kill();
    fleet.lasts();
    let refused = fleet.heard("refused");
    server.restart();
    fleet.ends();
    let evidence = Evidence::new(&server, refused, "calls refused");
    Row::of("kill -9 with an AOF", fleet, &evidence).covered(true)
}

pub(super) fn stopped(stage: Stage) -> Row {
    let server = RedisServer::start();
    let mut fleet = stage.on(&server);
    server.signal("STOP");
    fleet.lasts();
    let late = fleet.heard("no answer within");
    server.signal("CONT");
    fleet.ends();
    let evidence = Evidence::new(&server, late, "calls late");
    Row::of("SIGSTOP", fleet, &evidence).covered(true)
}

pub(super) fn scripts_flushed(stage: Stage) -> Row {
    let server = RedisServer::start();
    let mut fleet = stage.on(&server);
    let texts = calls_of(&server, "eval");
    let mut connection = server.connection();
    fleet.lasts_with(Duration::from_millis(10), || {
        let flush = redis::cmd("SCRIPT").arg("FLUSH").exec(&mut connection);
        flush.expect("done");
    });
    drop(connection);
    fleet.ends();
    let texts = calls_of(&server, "eval") - texts;
    let evidence = Evidence::new(&server, texts, "scripts sent again");
    Row::of("SCRIPT FLUSH", fleet, &evidence)
}

pub(super) fn flushed(stage: Stage) -> Row {
    let server = RedisServer::start();
    let mut fleet = stage.on(&server);
    let mut lost = 0;
    for _ in 0..3 {
        lost += keys(&server);
        command(&server, &["FLUSHALL"]);
        fleet.loses();
        fleet.until("machines get replies", |fleet| {
            fleet.is_answered_since(fleet.lost)
        });
    }
    fleet.ends();
    let evidence = Evidence::new(&server, lost, "keys lost");
    Row::of("FLUSHALL", fleet, &evidence)
}

pub(super) fn paused(stage: Stage) -> Row {
    let server = RedisServer::start();
    let mut fleet = stage.on(&server);
    let span = fleet.span().as_millis().to_string();
    command(&server, &["CLIENT", "PAUSE", &span, "WRITE"]);
    fleet.lasts();
    let late = fleet.heard("no answer within");
    command(&server, &["CLIENT", "UNPAUSE"]);
    fleet.ends();
    let evidence = Evidence::new(&server, late, "calls late");
    Row::of("CLIENT PAUSE", fleet, &evidence).covered(true)
}

pub(super) fn busy(stage: Stage) -> Row {
    let server = RedisServer::with(&["--busy-reply-threshold", "1"]);
    let mut fleet = stage.on(&server);
    let mut other = server.connection();
    let script = std::thread::spawn(move || {
        let mut endless = redis::cmd("EVAL");
        let ended = endless.arg("while true do end").arg(0).exec(&mut other);
        ended.expect_err("it is killed");
    });
    fleet.until("it is busy", |fleet| fleet.heard("BUSY") > 0);
    fleet.lasts();
    let busy = fleet.heard("BUSY");
    command(&server, &["SCRIPT", "KILL"]);
    script.join().expect("it was killed");
    fleet.ends();
    let evidence = Evidence::new(&server, busy, "replies of BUSY");
    Row::of("BUSY script", fleet, &evidence).covered(true)
}

pub(super) fn loading(stage: Stage) -> Row {
    let server = RedisServer::with(&["--loading-process-events-interval-bytes", "1024"]);
    let mut fleet = stage.on(&server);
    command(&server, &["DEBUG", "POPULATE", "20000"]);
    // Microseconds per key.
    let delay = (fleet.span().as_micros() / 20_000).to_string();
    command(&server, &["CONFIG", "SET", "key-load-delay", &delay]);
    command(&server, &["DEBUG", "RELOAD"]);
    fleet.ends();
    let loading = fleet.heard("loading the dataset");
    let evidence = Evidence::new(&server, loading, "replies of LOADING");
    Row::of("LOADING", fleet, &evidence).covered(true)
}

pub(super) fn full(stage: Stage) -> Row {
    let server = RedisServer::with(&["--maxmemory-policy", "noeviction"]);
    let mut fleet = stage.on(&server);
    command(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    fleet.lasts();
    let full = fleet.heard("maxmemory");
    command(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    fleet.ends();
    let evidence = Evidence::new(&server, full, "replies of OOM");
    Row::of("OOM noeviction", fleet, &evidence)
}

pub(super) fn evicting(stage: Stage) -> Row {
    let server = RedisServer::with(&["--maxmemory-policy", "allkeys-lru"]);
    let mut fleet = stage.on(&server);
    let room = (told(&server, "used_memory") + 500_000).to_string();
    command(&server, &["CONFIG", "SET", "maxmemory", &room]);
    let mut connection = server.connection();
    let mut number = 0_u32;
    fleet.lasts_with(Duration::from_millis(1), || {
        number += 1;
        let mut fill = redis::cmd("SETRANGE");
        let _ = fill.arg(number).arg(2_000).arg("x").exec(&mut connection);
    });
    drop(connection);
    command(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    let evicted = told(&server, "evicted_keys");
    // Any evicted key may have been the hot key.
    fleet.losses = evicted;
    fleet.lost = Some(tokio::time::Instant::now());
    fleet.ends();
    let evidence = Evidence::new(&server, evicted, "keys evicted");
    Row::of("allkeys-lru", fleet, &evidence)
}

/// A million keys, or as many as there is time for, expire at one moment.
pub(super) fn expiring(stage: Stage) -> Row {
    let server = RedisServer::start();
    let count = if stage.scale.fault > Duration::from_secs(1) {
        1_000_000
    } else {
        100_000
    };
    let script = "
        local at = redis.call('TIME')[1] * 1000 + ARGV[2]
        for number = 1, ARGV[1] do redis.call('SET', 'brief' .. number, 1, 'PXAT', at) end";
    let mut fill = redis::cmd("EVAL");
    fill.arg(script).arg(0).arg(count).arg(6_000);
    fill.exec(&mut server.connection()).expect("done");
    let mut fleet = stage.on(&server);
    fleet.until("all have expired", |_| {
        told(&server, "expired_keys") >= count
    });
    fleet.ends();
    let expired = told(&server, "expired_keys");
    let evidence = Evidence::new(&server, expired, "keys expired");
    Row::of("expiry of many keys", fleet, &evidence)
}

pub(super) fn another_type(stage: Stage) -> Row {
    let server = RedisServer::start();
    let mut fleet = stage.on(&server);
    let hot = "{throttle:hot:key}anchored/86400s";
    command(&server, &["DEL", hot]);
    fleet.loses();
    let mut connection = server.connection();
    fleet.lasts_with(Duration::from_millis(5), || {
        let mut pipe = redis::pipe();
        pipe.atomic().del(hot);
        pipe.cmd("RPUSH").arg(hot).arg("not ours");
        pipe.exec(&mut connection).expect("done");
    });
    drop(connection);
    let wrong = fleet.heard("another type");
    command(&server, &["DEL", hot]);
    fleet.loses();
    fleet.ends();
    let evidence = Evidence::new(&server, wrong, "errors of type");
    Row::of("wrong type", fleet, &evidence).covered(false)
}

fn keys(server: &RedisServer) -> u64 {
    redis::cmd("DBSIZE")
        .query(&mut server.connection())
        .expect("a count")
}
