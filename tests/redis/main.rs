//! Limits in Redis, against real servers.
#![cfg(feature = "redis")]

mod and;
mod chaos;
mod check;
#[cfg(feature = "redis-cluster")]
mod cluster;
mod configurations;
mod deadlines;
mod faults;
mod harmed_replies;
mod hashing_proxy;
mod limiter;
mod pool;
mod processes;
mod proxy_server;
mod queue;
#[path = "../common/redis_server.rs"]
mod redis_server;
mod refunds;
#[cfg(all(feature = "metrics", feature = "tracing"))]
mod reports;
mod retries;
#[path = "../common/vectors.rs"]
mod shared_vectors;
mod vectors;

use self::redis_server::RedisServer;

/// How often the server has executed a command.
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

/// Waits for a condition of a server.
fn reached(what: &str, is_so: impl Fn() -> bool) {
    let begun = tokio::time::Instant::now();
    while !is_so() {
        let waited = begun.elapsed();
        assert!(waited.as_secs() < 30, "timed out waiting until {what}");
        std::thread::park_timeout(std::time::Duration::from_millis(5));
    }
}
