//! One suite for every store on a server: Redis, a cluster, sentinels, Redis with TLS, PostgreSQL, and
//! stores in memory. `cassandra.rs` is the same with Cassandra.
#![cfg(all(feature = "redis", feature = "testkit"))]

#[cfg(feature = "cas")]
mod memory;
#[path = "../laws/place.rs"]
#[expect(dead_code, reason = "shared with the tests of the laws")]
mod place;
#[cfg(feature = "postgres")]
mod postgres;
mod redis;
#[cfg(feature = "redis-tls")]
mod redis_tls;
#[path = "../laws/subjected.rs"]
mod subjected;
#[path = "../algorithms/subjects.rs"]
#[expect(dead_code, reason = "shared with the tests of the algorithms")]
mod subjects;
#[allow(dead_code, reason = "some parts are for Cassandra")]
mod suite;

#[cfg(feature = "postgres")]
use test_support::postgres_server;
#[cfg(feature = "redis-cluster")]
use test_support::redis_cluster;
#[cfg(feature = "redis-sentinel")]
use test_support::replicas;
#[cfg(feature = "postgres")]
use test_support::wait;
use test_support::{proxy, random, redis_server, vectors as shared_vectors};
