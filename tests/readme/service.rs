use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::{Router, http::StatusCode, routing::post};
use tower_throttle::store::redis::Redis;
use tower_throttle::{Headers, Quota, RateLimitLayer, RateLimited, TokenBucket};

#[derive(Clone, Copy)]
struct Account(u64); // Authentication, outside of the limit, puts it into the extensions.

fn app(redis: &Redis) -> Router {
    let account = |request: &Request| match request.extensions().get() {
        Some(Account(number)) => Ok(*number),
        None => Err(StatusCode::UNAUTHORIZED),
    };
    let json = |_: &Request, denied: &RateLimited| -> Response {
        let wait = denied.retry_after().unwrap_or_default().as_millis();
        let body = format!(r#"{{"error": "{denied}", "retry_after_ms": {wait}}}"#);
        let media = [("content-type", "application/json")];
        (denied.status(), media, body).into_response()
    };
    let orders = redis.limiter("orders", TokenBucket::new(Quota::per_minute(60)));
    let limit = RateLimitLayer::new(account, orders)
        .headers(Headers::Draft11)
        .respond(json);
    Router::new().route("/orders", post(async || "ordered").layer(limit))
}

// ---- The page ends here.

use tokio::net::TcpListener;

use crate::{redis_server::RedisServer, support::send};

#[tokio::test]
async fn two_machines_share_a_limit_and_say_so_in_json() {
    let server = RedisServer::start();
    let mut addresses = Vec::new();
    for _ in 0..2 {
        let redis = Redis::open(&server.url()).unwrap();
        let redis = redis.deadline(std::time::Duration::from_secs(10));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        addresses.push(listener.local_addr().unwrap());
        // In place of authentication.
        let app = app(&redis).layer(axum::middleware::from_fn(
            async |mut request: Request, next: axum::middleware::Next| {
                if request.headers().contains_key("authorization") {
                    request.extensions_mut().insert(Account(7));
                }
                next.run(request).await
            },
        ));
        tokio::spawn(async { axum::serve(listener, app).await });
    }
    let response = send(addresses[0], "POST /orders", "").await;
    assert_eq!(response.status, 401);
    let ask =
        async |n: usize| send(addresses[n % 2], "POST /orders", "authorization: right\r\n").await;
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
    let head = &denied.head;
    assert!(
        head.contains("\r\ncontent-type: application/json\r\n"),
        "{head}"
    );
    assert!(head.contains("\r\nretry-after: 1\r\n"), "{head}");
}
