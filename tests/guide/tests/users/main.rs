//! Five programs, one per kind of user, written from the pages alone, and what their users see.
//!
//! Each file begins with the program. It is served as it would be, and receives real requests.

mod behind_nginx;
mod grpc_service;
mod library;
mod migrated;
mod replicas;
mod support;

use test_support::{nginx, redis_server};
