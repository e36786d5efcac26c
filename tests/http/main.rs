//! HTTP and gRPC: whose request it is, and what a client is told, up to real servers and clients.

mod answers;
mod grpc;
mod headers;
mod keys;
mod servers;
mod spoofing;
mod support;
mod threads;
