use std::time::Duration;

use axum::{
    Router,
    extract::Request,
    http::StatusCode,
    routing::{get, post},
};
use tower_throttle::{
    FixedWindow, Global, HeaderKey, LeakyBucket, Quota, RateLimitLayer, SlidingLog, TokenBucket,
};

fn app() -> Router {
    // Two limits for each API key: a request needs room in both.
    let burst_and_day = (
        TokenBucket::new(Quota::per_second(10).burst(50)),
        FixedWindow::new(Quota::per_day(100_000)),
    );
    let search = RateLimitLayer::new(HeaderKey::new("x-api-key"), burst_and_day);

    // At most 5 in any minute per user. Requests without a user are rejected.
    let user = |request: &Request| match request.headers().get("x-user") {
        Some(user) => Ok(user.clone()),
        None => Err(StatusCode::UNAUTHORIZED),
    };
    let login = RateLimitLayer::new(user, SlidingLog::new(Quota::per_minute(5)));

    // One every 500 ms, for all clients together. Up to 20 requests are queued, for up to 10 s each.
    let pace = LeakyBucket::new(Quota::per_second(2))
        .queue(20)
        .max_wait(Duration::from_secs(10));
    let export = RateLimitLayer::new(Global, pace);

    Router::new()
        .route("/search", get(async || "found").layer(search))
        .route("/login", post(async || "welcome").layer(login))
        .route("/export", get(async || "exported").layer(export))
}

// ---- The page ends here.

use axum::body::Body;
use tokio::time::Instant;
use tower::ServiceExt;

async fn send(app: &Router, method: &str, path: &str, header: (&str, &str)) -> StatusCode {
    let request = Request::builder().method(method).uri(path);
    let request = request.header(header.0, header.1).body(Body::empty());
    let Ok(response) = app.clone().oneshot(request.expect("a request")).await;
    response.status()
}

#[tokio::test(start_paused = true)]
async fn keys_have_limits_of_their_own() {
    let app = app();
    for key in ["one", "two"] {
        for n in 1..=51 {
            let status = send(&app, "GET", "/search", ("x-api-key", key)).await;
            assert_eq!(status.is_success(), n <= 50, "{key} {n}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_without_a_user_are_rejected() {
    let app = app();
    for n in 1..=6 {
        let status = send(&app, "POST", "/login", ("x-user", "ann")).await;
        assert_eq!(status.is_success(), n <= 5, "{n}");
    }
    let status = send(&app, "POST", "/login", ("x-other", "ann")).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
}

#[tokio::test(start_paused = true)]
async fn exports_are_queued() {
    let app = app();
    let start = Instant::now();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..22 {
        let app = app.clone();
        calls.spawn(async move { send(&app, "GET", "/export", ("x-user", "ann")).await });
    }
    let statuses = calls.join_all().await;
    let admitted = statuses.iter().filter(|status| status.is_success()).count();
    assert_eq!(admitted, 21);
    assert_eq!(start.elapsed(), Duration::from_secs(10));
}
