//! A client that keeps to the limits that its servers state.
#![cfg(feature = "tokio")]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod line;
mod rules;
mod servers;
mod support;
