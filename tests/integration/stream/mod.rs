//! Messages one by one, bytes per second, and permits of upgraded connections.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![cfg(all(feature = "stream", feature = "tokio"))]

mod bodies;
mod messages;
mod servers;
