//! Requests that wait: on paused time, no test sleeps.
#![cfg(feature = "tokio")]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod crowds;
mod lines;
mod order;
mod seats;
mod servers;
mod support;
