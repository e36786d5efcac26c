//! Limits in Redis, against real servers.
#![cfg(feature = "redis")]

mod again;
mod and;
mod chaos;
#[cfg(feature = "redis-cluster")]
mod cluster;
mod faults;
mod limiter;
mod processes;
mod proxy;
mod queue;
#[path = "../common/redis_server.rs"]
mod redis_server;
mod several;
#[path = "../common/vectors.rs"]
mod shared_vectors;
mod vectors;
mod wire;

use self::redis_server::RedisServer;

/// How often the server has carried out a command.
fn calls_of(server: &RedisServer, command: &str) -> u64 {
    let info: String = redis::cmd("INFO")
        .arg("commandstats")
        .query(&mut server.connection())
        .expect("statistics");
    let start = format!("cmdstat_{command}:calls=");
    info.lines()
        .find_map(|line| line.strip_prefix(&start))
        .and_then(|rest| rest.split(',').next())
        .map_or(0, |calls| calls.parse().expect("a number"))
}

/// Waits for what becomes true of a server.
fn reached(what: &str, is_so: impl Fn() -> bool) {
    let begun = tokio::time::Instant::now();
    while !is_so() {
        let waited = begun.elapsed();
        assert!(waited.as_secs() < 30, "it never came that {what}");
        std::thread::park_timeout(std::time::Duration::from_millis(5));
    }
}
