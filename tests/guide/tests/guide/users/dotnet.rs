//! As with .NET's limiters: a window per user whose newest waiting request goes first, chained with a limit for all.

use axum::{Router, extract::Request, http::StatusCode, routing::get};
use tower_throttle::{FixedWindow, Global, Quota, RateLimitLayer, TokenBucket};

fn app() -> Router {
    // `PartitionedRateLimiter.Create(context => RateLimitPartition.GetFixedWindowLimiter(user, ..))` with
    // `PermitLimit = 2, QueueLimit = 2, QueueProcessingOrder = NewestFirst`.
    let user = |request: &Request| {
        let user = request.headers().get("x-user").cloned();
        user.ok_or(StatusCode::UNAUTHORIZED)
    };
    let window = FixedWindow::new(Quota::per_minute(2)).anchored();
    let per_user = RateLimitLayer::new(user, window)
        .queue(2)
        .newest_first()
        .name("user");
    // `PartitionedRateLimiter.CreateChained(perUser, all)`.
    let all = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_day(5))).name("all");
    Router::new()
        .route("/{n}", get(async || "done"))
        .layer(per_user.and(all))
}

// ---- What its users see.

use axum::body::Body;
use tokio::{sync::mpsc, task::yield_now, time::Instant};
use tower::ServiceExt;

#[tokio::test(start_paused = true)]
async fn the_newest_request_goes_first_and_the_chain_denies_what_one_limit_denies() {
    let (app, begun) = (app(), Instant::now());
    let (sender, mut ended) = mpsc::unbounded_channel();
    for n in 1..=5 {
        let request = Request::get(format!("/{n}")).header("x-user", "ann");
        let request = request.body(Body::empty()).expect("a request");
        let (app, sender) = (app.clone(), sender.clone());
        tokio::spawn(async move {
            let Ok(response) = app.oneshot(request).await;
            let status = response.status().as_u16();
            sender.send((n, status, begun.elapsed().as_secs()))
        });
        yield_now().await;
    }
    drop(sender);
    let mut seen = Vec::new();
    while let Some(one) = ended.recv().await {
        seen.push(one);
    }
    // The fifth takes the place of the third, the oldest one that waits.
    assert_eq!(
        seen,
        [
            (1, 200, 0),
            (2, 200, 0),
            (3, 429, 0),
            (5, 200, 60),
            (4, 200, 60)
        ]
    );

    // Four of five per day are used: the chain denies the second one, and no partition counts it.
    let status = async |user: &str| {
        let request = Request::get("/").header("x-user", user).body(Body::empty());
        let request = app.clone().oneshot(request.expect("a request"));
        let Ok(response) = request.await;
        response.status().as_u16()
    };
    assert_eq!(status("bob").await, 404);
    assert_eq!(status("bob").await, 429);
}
