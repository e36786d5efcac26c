//~ `Tenant` is not a key: a key is an owned value

use axum::{Router, extract::Request, routing::get};
use tower_throttle::{Quota, RateLimitLayer, TokenBucket};
#[derive(Hash)]
struct Tenant(u32);
fn main() {
    let limit = RateLimitLayer::new(
        |_: &Request| Tenant(1),
        TokenBucket::new(Quota::per_second(1)),
    );
    let _: Router = Router::new().route("/", get(|| async {})).layer(limit);
}
