//! Known faults of servers, caused on real ones under load.
//!
//! Every test run causes a few of them. `CHAOS=all` causes all, longer and with more load, and
//! `CHAOS=part,part` those whose names contain one of the parts. Each is a row of a table.

#[cfg(feature = "redis-cluster")]
mod cluster;
mod connections;
mod failover;
mod fleet;
mod planted;
mod report;
mod servers;
mod time;

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tower_throttle::store::redis::Redis;

use self::fleet::{Fleet, Scale};
use self::planted::Plant;
use self::report::{Check, Evidence, Row};
use crate::redis_server::RedisServer;

/// The settings of a run.
#[derive(Clone, Copy, Debug)]
struct Stage {
    scale: Scale,
    plant: Plant,
}

impl Stage {
    /// Machines under load, each connected by `connect`.
    fn fleet(self, connect: &dyn Fn() -> Redis) -> Fleet {
        Fleet::start(self.scale, self.plant, connect)
    }

    /// Machines under load on one server.
    fn on(self, server: &RedisServer) -> Fleet {
        self.at(&server.url())
    }

    fn at(self, url: &str) -> Fleet {
        self.fleet(&|| Redis::open(url).expect("a url"))
    }
}

/// Part of every test run.
const OFTEN: bool = true;
const SELDOM: bool = false;

type Fault = fn(Stage) -> Row;
type DynFault<'a> = &'a dyn Fn(Stage) -> Row;

const FAULTS: &[(&str, bool, Fault)] = &[
    (
        "kill -9 without a file",
        OFTEN,
        servers::killed_without_file,
    ),
    ("kill -9 with an AOF", OFTEN, servers::killed_with_file),
    ("SIGSTOP", OFTEN, servers::stopped),
    ("SCRIPT FLUSH", OFTEN, servers::scripts_flushed),
    ("FLUSHALL", SELDOM, servers::flushed),
    ("CLIENT PAUSE", SELDOM, servers::paused),
    ("BUSY script", SELDOM, servers::busy),
    ("LOADING", SELDOM, servers::loading),
    ("OOM noeviction", OFTEN, servers::full),
    ("allkeys-lru", SELDOM, servers::evicting),
    ("expiry of many keys", SELDOM, servers::expiring),
    ("wrong type", SELDOM, servers::another_type),
    ("CLIENT KILL", OFTEN, connections::killed),
    ("NOPERM", OFTEN, connections::without_permission),
    ("wrong password", SELDOM, connections::without_password),
    ("maxclients", SELDOM, connections::without_room),
    ("replies lost", OFTEN, connections::replies_lost),
    ("replies cut", SELDOM, connections::replies_cut),
    ("replies split", SELDOM, connections::replies_split),
    ("replies late", SELDOM, connections::replies_late),
    ("silent connection", OFTEN, connections::silent),
    ("address flips", SELDOM, connections::address_flips),
    ("time jumps", OFTEN, time::jumps),
    ("READONLY", OFTEN, failover::read_only),
    ("FAILOVER with TCP up", OFTEN, failover::handed_over),
    ("replica cut", OFTEN, failover::cut_before),
    #[cfg(feature = "redis-sentinel")]
    ("Sentinel kill -9", OFTEN, failover::primary_killed),
    #[cfg(feature = "redis-sentinel")]
    ("Sentinel SIGSTOP", SELDOM, failover::primary_stopped),
    #[cfg(feature = "redis-cluster")]
    ("cluster slots move", OFTEN, cluster::slots_move),
    #[cfg(feature = "redis-cluster")]
    ("cluster CLIENT KILL", SELDOM, cluster::connections_killed),
    #[cfg(feature = "redis-cluster")]
    ("cluster replies cut", OFTEN, cluster::replies_cut),
    #[cfg(feature = "redis-cluster")]
    ("cluster kill -9", SELDOM, cluster::master_killed),
    #[cfg(feature = "redis-cluster")]
    ("cluster SIGSTOP", SELDOM, cluster::master_stopped),
];

/// One fault at a time, so that counted panics belong to it.
static ALONE: Mutex<()> = Mutex::new(());

/// Shows promise 95.
#[test]
fn every_fault_is_survived() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let chosen = std::env::var("CHAOS").unwrap_or_default();
    let all = chosen == "all";
    let scale = if chosen.is_empty() {
        Scale {
            calls: 1,
            fault: Duration::from_secs(2),
        }
    } else {
        Scale {
            calls: 3,
            fault: Duration::from_secs(3),
        }
    };
    let names: Vec<_> = chosen.split(',').filter(|name| !name.is_empty()).collect();
    let plant = Plant::Nothing;
    println!("{}", Row::title());
    let mut broken = Vec::new();
    let mut done = 0;
    for (name, often, fault) in FAULTS {
        let named = names.iter().any(|part| name.contains(part));
        if all || named || (names.is_empty() && *often) {
            let row = fault(Stage { scale, plant });
            println!("{row}");
            done += 1;
            if !row.broken.is_empty() {
                broken.push(row.to_string());
            }
        }
    }
    assert!(done > 0, "no fault is called {chosen}");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Each check finds its planted mistake.
///
/// Shows promise 95.
#[test]
fn planted_mistakes_are_found() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let server = RedisServer::start();
    let leaves = Plant::LeavesConnection(server.port());
    let cut = |stage: Stage| connections::replies_cut_of(stage, &server);
    let cases: &[(Plant, DynFault<'_>, Check)] = &[
        (Plant::AsksAgain, &connections::replies_lost, Check::Once),
        (Plant::Waits, &servers::stopped, Check::Deadline),
        (Plant::GivesBack, &connections::killed, Check::Charges),
        (Plant::Alone, &connections::killed, Check::Limit),
        (Plant::StaysAway, &servers::stopped, Check::Recovery),
        (Plant::StaysAway, &servers::stopped, Check::StandIn),
        (Plant::LeavesTask, &connections::killed, Check::Tasks),
        (leaves, &cut, Check::Connections),
        (Plant::Panics, &connections::killed, Check::Panics),
        (Plant::Nothing, &nothing, Check::Happened),
    ];
    let scale = Scale {
        calls: 1,
        fault: Duration::from_millis(1_500),
    };
    for (plant, fault, check) in cases {
        let plant = *plant;
        let row = fault(Stage { scale, plant });
        let found = row.broken.iter().any(|(broken, _)| broken == check);
        assert!(found, "{plant:?} is not found by {check:?}:\n{row}");
    }
}

/// A fault that does not happen.
fn nothing(stage: Stage) -> Row {
    let server = RedisServer::start();
    let fleet = stage.on(&server);
    Row::of("nothing", fleet, &Evidence::new(&server, 0, "fault"))
}

/// Runs a command on a server.
fn command(server: &RedisServer, words: &[&str]) {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.exec(&mut server.connection()).expect("done");
}

/// A number in the INFO of a server.
fn told(server: &RedisServer, name: &str) -> u64 {
    let info: String = redis::cmd("INFO")
        .query(&mut server.connection())
        .expect("statistics");
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .and_then(|number| number.trim().parse().ok())
        .unwrap_or(0)
}
