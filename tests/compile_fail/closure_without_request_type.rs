//~ consider giving this closure parameter an explicit type

use axum::{Router, routing::get};
use tower_throttle::{Quota, RateLimitLayer, TokenBucket};
fn main() {
    let limit = RateLimitLayer::new(
        |req| req.uri().path().to_owned(),
        TokenBucket::new(Quota::per_second(1)),
    );
    let _: Router = Router::new().route("/", get(|| async {})).layer(limit);
}
