//~ http::Request<
use axum::{Router, routing::get};
use tower_throttle::{Quota, RateLimitLayer, TokenBucket};

fn main() {
    // A layer sees the request before tonic reads the message.
    let limit = RateLimitLayer::new(
        |req: &tonic::Request<()>| req.metadata().len(),
        TokenBucket::new(Quota::per_second(1)),
    );
    let _: Router = Router::new().route("/", get(|| async {})).layer(limit);
}
