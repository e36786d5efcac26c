//~ expected `u64`, found `usize`

use axum::{Router, extract::Request, routing::get};
use tower_throttle::{Global, Quota, RateLimitLayer, TokenBucket};
fn main() {
    let limit = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_second(1)))
        .cost(|req: &Request| req.uri().path().len());
    let _: Router = Router::new().route("/", get(|| async {})).layer(limit);
}
