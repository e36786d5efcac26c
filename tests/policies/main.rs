//! Policies from files: reading, applying and reloading them.
#![cfg(feature = "policies")]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod docs;
mod hostile;
mod lists;
mod overrides;
mod reload;
mod round_trip;
mod routes;
mod rules;
mod safety;
mod served;
mod settings;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod stores;
mod support;
mod watch;

#[cfg(feature = "redis")]
use test_support::redis_server;
