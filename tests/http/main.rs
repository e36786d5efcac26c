//! HTTP and gRPC: whose request it is, and what a client is told, up to real servers and clients.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod answers;
mod grpc;
mod headers;
mod keys;
mod servers;
mod spoofing;
mod support;
mod threads;
mod tls;
mod web;
