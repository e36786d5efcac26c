//~ a cost is a `u64`, and this closure returns `usize`: write `u64::from(..)` or `.. as u64`

use axum::{Router, extract::Request, routing::get};
use tower_throttle::{Global, Quota, RateLimitLayer, TokenBucket};
fn main() {
    let limit = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_second(1)))
        .cost(|req: &Request| req.uri().path().len());
    let _: Router = Router::new().route("/", get(|| async {})).layer(limit);
}
