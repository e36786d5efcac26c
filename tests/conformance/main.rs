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
#[cfg(feature = "postgres")]
#[path = "../common/postgres_server.rs"]
#[expect(dead_code, reason = "shared with the tests of PostgreSQL")]
mod postgres_server;
#[path = "../common/proxy.rs"]
#[expect(dead_code, reason = "shared with the tests of stores")]
mod proxy;
#[path = "../algorithms/random.rs"]
#[expect(dead_code, reason = "shared with the tests of algorithms")]
mod random;
mod redis;
#[cfg(feature = "redis-cluster")]
#[path = "../common/redis_cluster.rs"]
#[expect(dead_code, reason = "shared with the tests of the store")]
mod redis_cluster;
#[path = "../common/redis_server.rs"]
#[expect(dead_code, reason = "shared with the tests of Redis")]
mod redis_server;
#[cfg(feature = "redis-tls")]
#[path = "../common/redis_tls.rs"]
mod redis_tls;
#[cfg(feature = "redis-sentinel")]
#[path = "../common/replicas.rs"]
#[expect(dead_code, reason = "shared with the tests of Redis")]
mod replicas;
#[path = "../common/vectors.rs"]
mod shared_vectors;
#[path = "../laws/subjected.rs"]
mod subjected;
#[path = "../algorithms/subjects.rs"]
#[expect(dead_code, reason = "shared with the tests of the algorithms")]
mod subjects;
#[allow(dead_code, reason = "some parts are for Cassandra")]
mod suite;
#[cfg(feature = "postgres")]
#[path = "../common/wait.rs"]
mod wait;
