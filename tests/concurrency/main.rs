//! Limits on how many requests of one key are in flight.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod adaptive;
#[cfg(feature = "tokio")]
mod attacked;
#[cfg(feature = "tokio")]
mod conservation;
mod layer;
#[cfg(feature = "tokio")]
mod measured;
#[cfg(feature = "tokio")]
mod priority;
#[cfg(feature = "tokio")]
mod servers;
#[cfg(feature = "tokio")]
mod waiting;

#[cfg(feature = "tokio")]
use test_support::{random, wait};
