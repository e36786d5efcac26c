//! The stores that need a server, against real ones.
#![cfg(feature = "redis")]

mod faults;
mod limiter;
#[path = "../common/redis_server.rs"]
mod redis_server;
