//! What an operator gets of a store that refuses, in every mode: an error that stays an error, one line of
//! the log per cause, counts, and an alert. And the metrics of a store that is down.
#![cfg(all(
    feature = "redis",
    feature = "postgres",
    feature = "metrics",
    feature = "tracing"
))]

mod alerts;
#[path = "../common/log.rs"]
mod log;
#[path = "../common/measured.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod measured;
mod outages;
#[path = "../common/postgres_server.rs"]
#[expect(dead_code, reason = "shared with the tests of the store")]
mod postgres_server;
#[path = "../common/redis_server.rs"]
#[expect(dead_code, reason = "shared with the tests of the store")]
mod redis_server;
mod refusals;
