//! Queued requests, mostly in tokio's paused time.
#![cfg(feature = "tokio")]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod changes;
#[path = "../common/computed.rs"]
mod computed;
mod crowds;
mod lines;
mod model;
mod order;
mod own;
mod planted;
mod priority;
#[path = "../algorithms/random.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod random;
mod runtimes;
mod seats;
mod servers;
mod support;
mod tonic;
#[path = "../common/wait.rs"]
mod wait;
