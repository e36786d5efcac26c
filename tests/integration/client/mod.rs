//! A hostile client: spellings of headers and paths. What it sends gets past no limit
//! and reaches no other client.
#![cfg(all(feature = "axum", feature = "policies"))]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod inner_denials;
mod spellings;
mod support;
