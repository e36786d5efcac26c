//! Queues a burst instead of denying it: `cargo run --example queue`
//!
//! Four exports per second, evenly spaced. At most six requests are queued, each for at most 1.5 s;
//! further ones are denied at once with a `Retry-After`. A client that disconnects leaves the
//! queue, and all requests behind it move up.

use std::time::Duration;

use axum::{Router, body::Body, extract::Request, http::StatusCode, routing::get};
use tokio::{task::JoinSet, time::Instant};
use tower::ServiceExt;
use tower_throttle::{Global, LeakyBucket, Quota, RateLimitLayer};

async fn export() -> &'static str {
    "a long table"
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let bucket = LeakyBucket::new(Quota::per_second(4).burst(1));
    let limit = RateLimitLayer::new(Global, bucket)
        .queue(20)
        .max_wait(Duration::from_millis(1_500))
        .name("export")
        // The bound on queued requests over all keys.
        .seats(6)
        .deny_when_full();
    let handle = limit.handle();
    let app = Router::new().route("/export", get(export)).layer(limit);

    let start = Instant::now();
    let mut calls = JoinSet::new();
    let mut aborts = Vec::new();
    for number in 1..=9 {
        let app = app.clone();
        aborts.push(calls.spawn(async move {
            let request = Request::get("/export").body(Body::empty());
            let Ok(response) = app.oneshot(request.expect("a valid request")).await;
            let retry = response.headers().get("retry-after").cloned();
            (number, start.elapsed(), response.status(), retry)
        }));
        tokio::task::yield_now().await;
    }
    println!("{} requests are queued", handle.waiting());
    println!("          request 3 disconnects");
    aborts[2].abort();

    let mut released = Vec::new();
    while let Some(call) = calls.join_next().await {
        let Ok((number, at, status, retry)) = call else {
            continue; // the one that disconnected
        };
        let at = at.as_millis();
        match retry {
            None => println!("{at:>5} ms  request {number}: {status}"),
            Some(retry) => {
                println!("{at:>5} ms  request {number}: {status}, retry after {retry:?} s");
            }
        }
        if status == StatusCode::OK {
            released.push((number, at));
        }
    }
    let numbers: Vec<_> = released.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [1, 2, 4, 5, 6, 7], "in order");
    for (turn, (_, at)) in (0..).zip(&released) {
        assert!(*at >= turn * 250, "released early: {released:?}");
    }
    println!("{:?}", handle.counts());
}
