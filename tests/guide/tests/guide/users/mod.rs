//! Programs of users of this crate and of other limiters, written from the pages alone, and what their users see.

mod dotnet;
mod extender;
mod grpc;
mod guava;
mod incr;
mod operator;
mod outbound;
mod web;

use test_support::redis_server;
