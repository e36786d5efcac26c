//! The stores that need a server, against real ones.
#![cfg(feature = "redis")]

#[cfg(feature = "redis-cluster")]
mod redis_cluster;
mod redis_faults;
mod redis_limiter;
mod redis_proxy;
#[path = "../common/redis_server.rs"]
mod redis_server;
