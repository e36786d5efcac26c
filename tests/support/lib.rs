//! What many test binaries use: servers, a proxy that harms replies, what is logged, measured and allocated.

pub mod cargo;
#[cfg(unix)]
pub mod cassandra_server;
pub mod computed;
pub mod counting;
pub mod folder;
#[cfg(unix)]
pub mod log;
pub mod measured;
#[cfg(unix)]
pub mod nginx;
#[cfg(unix)]
pub mod pooler;
#[cfg(unix)]
pub mod postgres_server;
#[cfg(unix)]
pub mod program;
#[cfg(unix)]
pub mod proxy;
pub mod random;
#[cfg(unix)]
pub mod redis_cluster;
#[cfg(unix)]
pub mod redis_server;
#[cfg(unix)]
pub mod redis_tls;
#[cfg(unix)]
pub mod replicas;
pub mod vectors;
pub mod wait;

use std::path::Path;

/// The folder of the library.
#[must_use]
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A number from the environment, which can make a run longer, or `default`.
#[must_use]
pub fn from_env(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(number) => number.parse().expect("a number"),
        Err(_) => default,
    }
}
