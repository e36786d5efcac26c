//! Tests of the table: against an unbounded map, floods of keys, threads and panics in user code.
//!
//! Each property is a function that returns the faults it found. It must find none in the table,
//! and it must find some in a deliberately broken copy.

mod capacity;
#[cfg(feature = "redis")]
mod conformance;
mod env;
mod flood;
mod histories;
#[path = "../common/linearizable.rs"]
mod linearizable;
mod memory;
mod model;
#[cfg(feature = "redis")]
#[path = "../laws/place.rs"]
#[expect(dead_code, reason = "shared with the tests of the laws")]
mod place;
#[cfg(all(feature = "postgres", feature = "redis"))]
#[path = "../common/postgres_server.rs"]
#[expect(dead_code, reason = "shared with the tests of PostgreSQL")]
mod postgres_server;
#[cfg(feature = "redis")]
#[path = "../redis/proxy_server.rs"]
#[expect(dead_code, reason = "shared with the tests of Redis")]
mod proxy_server;
#[path = "../algorithms/random.rs"]
#[cfg_attr(
    not(feature = "redis"),
    expect(dead_code, reason = "shared with other tests")
)]
mod random;
mod rates;
#[cfg(feature = "redis-cluster")]
#[path = "../common/redis_cluster.rs"]
mod redis_cluster;
#[cfg(feature = "redis")]
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
mod retune;
#[cfg(feature = "redis")]
#[path = "../common/vectors.rs"]
mod shared_vectors;
#[cfg(feature = "redis")]
#[path = "../laws/subjected.rs"]
mod subjected;
#[cfg(feature = "redis")]
#[path = "../algorithms/subjects.rs"]
#[expect(dead_code, reason = "shared with the tests of the algorithms")]
mod subjects;
mod users;
#[cfg(all(feature = "postgres", feature = "redis"))]
#[path = "../common/wire_proxy.rs"]
#[expect(dead_code, reason = "shared with the tests of other stores")]
mod wire_proxy;
