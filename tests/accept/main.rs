//! Limits on connections, over real sockets.
#![cfg(all(feature = "accept", feature = "axum"))]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod exhaustion;
#[cfg(all(feature = "metrics", feature = "tracing"))]
#[path = "../common/log.rs"]
mod log;
#[cfg(all(feature = "metrics", feature = "tracing"))]
#[path = "../common/measured.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod measured;
mod places;
mod refusals;
#[cfg(all(feature = "metrics", feature = "tracing"))]
mod reports;
mod support;
mod tls;
#[path = "../common/wait.rs"]
mod wait;
