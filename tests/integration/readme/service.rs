use std::error::Error;

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, http::StatusCode, routing::post};
use serde_json::json;
use tokio::net::TcpListener;
use tower_throttle::store::redis::Redis;
use tower_throttle::{Headers, Quota, RateLimitLayer, RateLimited, TokenBucket};

#[derive(Clone, Copy)]
struct Account(u64);

// In place of your authentication: it is outside of the limit.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let key = request.headers().get("authorization");
    if key.is_some_and(|key| key == "Bearer right") {
        request.extensions_mut().insert(Account(7));
    }
    next.run(request).await
}

fn app(redis: &Redis) -> Router {
    let account = |request: &Request| match request.extensions().get() {
        Some(Account(number)) => Ok(*number),
        None => Err(StatusCode::UNAUTHORIZED),
    };
    let answer = |_: &Request, denied: &RateLimited| -> Response {
        let seconds = denied.retry_after_secs();
        let body = json!({ "error": denied.to_string(), "retry_after": seconds });
        (denied.status(), Json(body)).into_response()
    };
    let orders = redis.limiter("orders", TokenBucket::new(Quota::per_minute(60)));
    let limit = RateLimitLayer::new(account, orders)
        .headers(Headers::Draft11)
        .respond(answer);
    let orders = post(async || "ordered").layer(limit);
    Router::new()
        .route("/orders", orders)
        .layer(from_fn(authenticate))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let redis = Redis::open("redis://127.0.0.1")?;
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    Ok(axum::serve(listener, app(&redis)).await?)
}

// ---- The page ends here.

use crate::readme::{redis_server::RedisServer, shown, support::send};

const AUTHORIZATION: &str = "authorization: Bearer right\r\n";

#[tokio::test]
async fn two_machines_share_a_limit_and_say_so_in_json() {
    let server = RedisServer::start();
    let mut addresses = Vec::new();
    for _ in 0..2 {
        let redis = Redis::open(&server.url()).unwrap();
        let redis = redis.deadline(std::time::Duration::from_secs(10));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        addresses.push(listener.local_addr().unwrap());
        let app = app(&redis);
        tokio::spawn(async { axum::serve(listener, app).await });
    }
    let response = send(addresses[0], "POST /orders", "").await;
    assert_eq!(response.status, 401);
    let ask = async |n: usize| send(addresses[n % 2], "POST /orders", AUTHORIZATION).await;
    for n in 0..60 {
        let response = ask(n).await;
        assert_eq!(response.status, 200, "{n}: {}", response.head);
        assert!(
            response.head.contains("\r\nratelimit: "),
            "{}",
            response.head
        );
    }
    // A token comes back each second.
    let mut denied = ask(0).await;
    for _ in 0..100 {
        if denied.status == 429 {
            break;
        }
        denied = ask(0).await;
    }
    assert_eq!(denied.status, 429);
    assert!(shown(1).count() > 6);
    for line in shown(1) {
        assert!(denied.head.contains(line), "{line}: {}", denied.head);
    }
}
