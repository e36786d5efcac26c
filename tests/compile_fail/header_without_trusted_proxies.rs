//~ say which proxies are trusted: `.trusting([..])` or `.hops(n)`

use axum::{Router, routing::get};
use tower_throttle::{ClientIp, Quota, RateLimitLayer, TokenBucket};
fn main() {
    let limit = RateLimitLayer::new(
        ClientIp::x_forwarded_for(),
        TokenBucket::new(Quota::per_second(1)),
    );
    let _: Router = Router::new().route("/", get(|| async {})).layer(limit);
}
