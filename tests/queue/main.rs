//! Queued requests, mostly in tokio's paused time.
#![cfg(feature = "tokio")]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod changes;
mod crowds;
mod lines;
mod model;
mod order;
mod own;
mod runtimes;
mod seats;
mod servers;
mod support;

use test_support::{computed, random};
