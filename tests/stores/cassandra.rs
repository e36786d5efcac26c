//! The suite of `conformance.rs` over a real Cassandra. `tests/run cassandra` runs it: it needs Java and
//! Maven.
#![cfg(not(any(feature = "redis", feature = "postgres")))]

#[path = "../common/cassandra_server.rs"]
#[expect(dead_code, reason = "shared with the tests of Cassandra")]
mod cassandra_server;
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "some parts are for other stores"
)]
mod conformance;
#[path = "../laws/place.rs"]
#[expect(dead_code, reason = "shared with the tests of the laws")]
mod place;
#[path = "../algorithms/random.rs"]
mod random;
#[path = "../common/vectors.rs"]
mod shared_vectors;
#[path = "../laws/subjected.rs"]
mod subjected;
#[path = "../algorithms/subjects.rs"]
#[expect(dead_code, reason = "shared with the tests of the algorithms")]
mod subjects;
#[path = "../common/wire_proxy.rs"]
#[expect(dead_code, reason = "shared with the tests of Cassandra")]
mod wire_proxy;
