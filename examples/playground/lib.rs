//! A web page on which limits can be tried.
//!
//! Each policy on the page becomes a [`RateLimitLayer`](tower_throttle::RateLimitLayer) on a route of
//! its own, or on one per machine of a fleet. Requests go through these routes, and the page shows what they return.

mod answer;
mod api;
mod grpc_status;
mod lane;
mod page;
mod policy;
mod route;
mod run;
mod runs;
mod sample;
mod scene;
mod setting;
mod snippet;
mod tally;
mod traffic;
mod what_if;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::Router;

/// Where it listens unless it is told otherwise: only programs of this machine can connect.
pub const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// The application: the page and what it calls.
pub fn app() -> Router {
    page::routes().merge(api::routes()).merge(what_if::routes())
}

#[cfg(test)]
mod http_tests;
