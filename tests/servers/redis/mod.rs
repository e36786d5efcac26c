//! Limits in Redis, against real servers.

mod check;
mod cluster;
mod deadlines;
mod faults;
mod limiter;
mod queue;
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

use crate::wait::connected;

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
