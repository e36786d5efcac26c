//! Queued requests, mostly in tokio's paused time.
#![cfg(feature = "tokio")]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod crowds;
mod lines;
#[cfg(all(feature = "calendar", feature = "governor"))]
mod model;
mod runtimes;
mod seats;
mod support;
mod table;
mod timeouts;

use test_support::{computed, random};
