//! A hostile client: caches, forms of gRPC, spellings of headers and paths. What it sends gets past no limit
//! and reaches no other client.
#![cfg(all(feature = "axum", feature = "policies"))]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod grpc;
mod inner_denials;
mod spellings;
mod support;
