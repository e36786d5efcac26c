//! Five programs, one per kind of user, written from the pages alone, and what their users see.
//!
//! Each file begins with the program. It is served as it would be, and receives real requests.

mod behind_nginx;
mod grpc_service;
mod library;
mod migrated;
#[path = "../../../common/nginx.rs"]
mod nginx;
#[path = "../../../common/redis_server.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod redis_server;
mod replicas;
mod support;
