//! Programs of users of other limiters, written from the pages alone, and what their users see.

mod dotnet;
mod guava;
mod incr;

use test_support::redis_server;
