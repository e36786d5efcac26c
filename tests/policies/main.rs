//! Policies from files: reading, applying and reloading them.
#![cfg(feature = "toml")]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod cases;
mod docs;
mod hostile;
mod reload;
mod round_trip;
mod rules;
mod schema;
mod served;
mod support;
