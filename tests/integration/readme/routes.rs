use std::time::Duration;

use axum::{
    Router,
    extract::Request,
    http::StatusCode,
    routing::{get, post},
};
use tower_throttle::{
    ClientIp, FixedWindow, Global, LeakyBucket, Quota, RateLimitLayer, SlidingLog, TokenBucket,
};

#[derive(Clone, Copy)]
struct Account(u64); // authentication puts it into the extensions of a request

fn app() -> Router {
    // Two limits for each account: a request needs room in both. Requests without one are rejected.
    let burst_and_day = (
        TokenBucket::new(Quota::per_second(10).burst(50)),
        FixedWindow::new(Quota::per_day(100_000)),
    );
    let account = |request: &Request| match request.extensions().get() {
        Some(Account(number)) => Ok(*number),
        None => Err(StatusCode::UNAUTHORIZED),
    };
    let search = RateLimitLayer::new(account, burst_and_day);

    // At most 5 in any minute per address.
    let login = RateLimitLayer::new(ClientIp::peer(), SlidingLog::new(Quota::per_minute(5)));

    // One every 500 ms, for all clients together. Up to 20 requests are queued, for up to 10 s each.
    let pace = LeakyBucket::new(Quota::per_second(2).burst(1));
    let export = RateLimitLayer::new(Global, pace)
        .queue(20)
        .max_wait(Duration::from_secs(10));

    Router::new()
        .route("/search", get(async || "found").layer(search))
        .route("/login", post(async || "welcome").layer(login))
        .route("/export", get(async || "exported").layer(export))
}

// ---- The page ends here.

use std::net::SocketAddr;

use axum::{body::Body, extract::ConnectInfo};
use tokio::time::Instant;
use tower::ServiceExt;

/// Sends a request of an account, if it has one, and of the only address.
async fn send(app: &Router, method: &str, path: &str, account: Option<Account>) -> StatusCode {
    let address: SocketAddr = "192.0.2.1:9".parse().expect("an address");
    let request = Request::builder().method(method).uri(path);
    let mut request = request.body(Body::empty()).expect("a request");
    request.extensions_mut().insert(ConnectInfo(address));
    if let Some(account) = account {
        request.extensions_mut().insert(account);
    }
    let Ok(response) = app.clone().oneshot(request).await;
    response.status()
}

/// Shows promise 101.
#[tokio::test(start_paused = true)]
async fn accounts_have_limits_of_their_own_and_requests_without_one_are_rejected() {
    let app = app();
    for account in [1, 2].map(Account) {
        for n in 1..=51 {
            let status = send(&app, "GET", "/search", Some(account)).await;
            assert_eq!(status.is_success(), n <= 50, "{} {n}", account.0);
        }
    }
    let status = send(&app, "GET", "/search", None).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
}

#[tokio::test(start_paused = true)]
async fn an_address_has_five_logins_whatever_it_says() {
    let app = app();
    for n in 1..=6 {
        let status = send(&app, "POST", "/login", Some(Account(n))).await;
        assert_eq!(status.is_success(), n <= 5, "{n}");
    }
}

/// Shows promise 61.
#[tokio::test(start_paused = true)]
async fn exports_are_queued() {
    let app = app();
    let start = Instant::now();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..22 {
        let app = app.clone();
        calls.spawn(async move { send(&app, "GET", "/export", None).await });
    }
    let statuses = calls.join_all().await;
    let admitted = statuses.iter().filter(|status| status.is_success()).count();
    assert_eq!(admitted, 21);
    assert_eq!(start.elapsed(), Duration::from_secs(10));
}
