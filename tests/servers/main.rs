//! Limits in real servers: one suite for every store, and what only one of them has.
//!
//! Cassandra is a Java program: its tests are ignored, and `tests/run cassandra` runs them.
#![cfg(all(
    feature = "cassandra",
    feature = "postgres",
    feature = "redis-tls",
    feature = "stream",
    feature = "testkit"
))]

mod cassandra;
mod conformance;
mod key_quotas;
mod postgres;
mod redis;
mod shared_limit;
mod stored;
mod suite;

use test_support::{
    cassandra_server, postgres_server, proxy, random, redis_cluster, redis_server, replicas,
    vectors as shared_vectors, wait,
};
#[cfg(all(feature = "metrics", feature = "tracing"))]
use test_support::{log, measured};
