//! Requests to a router, without a server.

use axum::{Router, body::Body, extract::Request, response::Response};
use tower::ServiceExt;
use tower_throttle::{Global, Local, Quota, RateLimitLayer, TokenBucket};

/// `requests` per hour for all clients together.
pub(crate) fn limit(requests: u64) -> RateLimitLayer<Global, Local<TokenBucket>> {
    RateLimitLayer::new(Global, TokenBucket::new(Quota::per_hour(requests)))
}

pub(crate) fn request(method: &str, path: &str) -> Request {
    Request::builder()
        .method(method)
        .uri(path)
        .body(Body::empty())
        .expect("a request")
}

pub(crate) async fn send(app: &Router, request: Request) -> Response {
    let Ok(response) = app.clone().oneshot(request).await;
    response
}
