//! Policies from files: reading, applying and reloading them.
#![cfg(feature = "toml")]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod cases;
mod docs;
mod hostile;
mod lists;
mod overrides;
#[cfg(feature = "postgres")]
#[expect(dead_code, reason = "shared with the tests of PostgreSQL")]
#[path = "../common/postgres_server.rs"]
mod postgres_server;
#[cfg(feature = "redis")]
#[expect(dead_code, reason = "shared with the tests of Redis")]
#[path = "../common/redis_server.rs"]
mod redis_server;
mod reload;
mod round_trip;
mod routes;
mod rules;
mod safety;
mod schema;
mod served;
mod settings;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod stores;
mod support;
mod watch;
