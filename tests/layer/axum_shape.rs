//! The design's first example, as it is written there.
use std::time::Duration;

use axum::extract::Request;
use axum::routing::{get, post};
use axum::{Router, http::HeaderValue};
use tower_throttle::{ClientIp, Global, LeakyBucket, Quota, RateLimitLayer, SlidingLog, TokenBucket};

async fn search() {}
async fn login() {}
async fn export() {}

fn user(req: &Request) -> Option<HeaderValue> {
    req.headers().get("user").cloned()
}

#[test]
fn the_first_example_compiles_as_it_is_written() {
    let _: Router = Router::new()
        .route("/search", get(search).layer(RateLimitLayer::new(ClientIp::peer(), TokenBucket::new(Quota::per_second(10).burst(50)))))
        .route("/login", post(login).layer(RateLimitLayer::new(|req: &Request| user(req), SlidingLog::new(Quota::per_minute(5)))))
        .route("/export", get(export).layer(RateLimitLayer::new(Global, LeakyBucket::new(Quota::per_second(2)).queue(20).max_wait(Duration::from_secs(10)))));
}
