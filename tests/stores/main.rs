//! Tests of the table: against an unbounded map, floods of keys, threads and panics in user code.
//!
//! Each property is a function that returns the faults it found. It must find none in the table,
//! and it must find some in a deliberately broken copy.

mod capacity;
#[cfg(feature = "redis")]
mod conformance;
mod flood;
mod histories;
mod memory;
mod model;
#[cfg(all(feature = "postgres", feature = "redis"))]
#[path = "../common/postgres_server.rs"]
#[expect(dead_code, reason = "shared with the tests of PostgreSQL")]
mod postgres_server;
#[cfg(feature = "redis")]
#[path = "../redis/proxy_server.rs"]
#[expect(dead_code, reason = "shared with the tests of Redis")]
mod proxy_server;
mod random;
mod rates;
#[cfg(feature = "redis")]
#[path = "../common/redis_server.rs"]
#[expect(dead_code, reason = "shared with the tests of Redis")]
mod redis_server;
mod retune;
mod users;
