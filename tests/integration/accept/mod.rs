//! Limits on connections, over real sockets.
#![cfg(all(feature = "accept", feature = "axum"))]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[cfg(all(feature = "metrics", feature = "tracing"))]
mod exhaustion;
mod places;
mod refusals;
#[cfg(all(feature = "metrics", feature = "tracing"))]
mod reports;
mod support;
