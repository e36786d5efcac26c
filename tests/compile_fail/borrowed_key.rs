//~ a reference is not a key: return an owned value, with `.to_owned()` or `.clone()`

use axum::{Router, extract::Request, routing::get};
use tower_throttle::{Quota, RateLimitLayer, TokenBucket};
fn main() {
    let limit = RateLimitLayer::new(
        |req: &Request| req.uri().path(),
        TokenBucket::new(Quota::per_second(1)),
    );
    let _: Router = Router::new().route("/", get(|| async {})).layer(limit);
}
