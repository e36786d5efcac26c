//! Limits in Redis, against real servers.
#![cfg(feature = "redis")]

#[cfg(feature = "redis-cluster")]
mod cluster;
mod faults;
mod limiter;
mod proxy;
#[path = "../common/redis_server.rs"]
mod redis_server;
