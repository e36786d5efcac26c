//! Limits in Redis, against real servers.

mod and;
mod check;
mod cluster;
mod costs;
mod deadlines;
mod faults;
mod limiter;
mod permits;
mod processes;
mod queue;
mod refunds;
#[cfg(all(feature = "metrics", feature = "tracing"))]
mod reports;
mod retries;
mod script_calls;
mod streams;

use std::time::Duration;

use tower_throttle::{
    FixedWindow, Quota,
    store::{Backend, Op, redis::Redis},
};

use crate::{redis_server::RedisServer, wait::connected};

/// Connects, however long that takes on a busy machine. The deadline of calls has to be longer than an attempt.
async fn connect(redis: Redis) -> Redis {
    let limiter = redis.limiter("connects", FixedWindow::new(Quota::per_day(1)));
    // Whether the server allows the call is for the test to say.
    let _ = connected(async || limiter.apply("key", Op::Peek(0)).await).await;
    redis
}

/// A connected client whose calls may take long on a busy machine.
async fn open(url: &str) -> Redis {
    let redis = Redis::open(url).expect("a url");
    connect(redis.deadline(Duration::from_secs(10))).await
}

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
