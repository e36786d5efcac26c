//! Limits by two keys in one layer, in Redis.

use std::time::Duration;

use axum::{Router, body::Body, extract::Request, routing::get};
use tower::ServiceExt;
use tower_throttle::{FixedWindow, Global, Quota, RateLimitLayer, TokenBucket};

use crate::redis::open;
use crate::redis_server::RedisServer;
use crate::wait::until;

fn window(limit: u64) -> FixedWindow {
    FixedWindow::new(Quota::per_day(limit))
}

async fn status(app: &Router, client: &'static str) -> u16 {
    let request = Request::builder().header("client", client);
    let request = request.body(Body::empty()).expect("a request");
    let answer = app.clone().oneshot(request).await.expect("an answer");
    answer.status().as_u16()
}

/// A refund that is a little short would leave less than the burst, or a time until it is full.
///
/// Shows promise 53.
#[tokio::test]
async fn a_denied_request_leaves_nothing_in_the_first_limit() {
    let server = RedisServer::start();
    let redis = open(&server.url()).await.without_deny_cache();
    let client = |req: &Request| req.headers()["client"].to_str().expect("text").to_owned();
    let bucket = TokenBucket::new(Quota::per_day(100).burst(7));
    let layer = RateLimitLayer::new(client, redis.limiter("client", bucket)).and(
        RateLimitLayer::new(Global, redis.limiter("total", window(1))),
    );
    let handle = layer.handle();
    let app = Router::new().route("/", get(|| async {})).layer(layer);
    assert_eq!(status(&app, "ann").await, 200);
    for _ in 0..5 {
        assert_eq!(status(&app, "bob").await, 429);
        let left = async || handle.first().peek("bob", 0).await.expect("a decision");
        until("it is given back", async || left().await.remaining() == 7).await;
        assert_eq!(left().await.reset_after, Duration::ZERO);
    }
    assert_eq!(
        handle
            .second()
            .peek(&(), 0)
            .await
            .expect("a decision")
            .remaining(),
        0
    );
    // The usage of another client is kept.
    let ann = handle.first().peek("ann", 0).await.expect("a decision");
    assert_eq!(ann.remaining(), 6);
}
