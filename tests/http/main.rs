//! HTTP and gRPC: keys, responses and headers, with mock services and with real servers.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod denials;
mod grpc;
mod headers;
mod keys;
mod servers;
mod spoofing;
mod support;
mod tls;
mod web;
