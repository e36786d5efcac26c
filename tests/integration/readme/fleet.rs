use axum::{Router, routing::post};
use tower_throttle::{HeaderKey, Quota, RateLimitLayer, SlidingWindow, store::redis::Redis};

fn app(redis: &Redis) -> Router {
    let pay = redis.limiter("pay", SlidingWindow::new(Quota::per_hour(1_000)));
    let limit = RateLimitLayer::new(HeaderKey::new("x-tenant"), pay);
    Router::new().route("/pay", post(async || "paid").layer(limit))
}

// ---- The page ends here.

use tokio::net::TcpListener;

use crate::readme::{redis_server::RedisServer, support::send};

/// Shows promise 101.
#[tokio::test]
async fn two_servers_share_one_limit() {
    let server = RedisServer::start();
    let mut addresses = Vec::new();
    for _ in 0..2 {
        let redis = Redis::open(&server.url()).unwrap();
        // Without a decision in 100 ms a request is admitted.
        let redis = redis.deadline(std::time::Duration::from_secs(10));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        addresses.push(listener.local_addr().unwrap());
        let app = app(&redis);
        tokio::spawn(async { axum::serve(listener, app).await });
    }
    for n in 0..1_001 {
        let response = send(addresses[n % 2], "POST /pay", "x-tenant: acme\r\n").await;
        assert_eq!(response.status == 200, n < 1_000, "{n}: {}", response.head);
    }
    let response = send(addresses[0], "POST /pay", "x-tenant: other\r\n").await;
    assert_eq!(response.status, 200);
}
