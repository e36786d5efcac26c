//~ a key is an owned value such as a `String`, an integer or an IP address, and a key closure is not async

use axum::{Router, extract::Request, routing::get};
use tower_throttle::{Quota, RateLimitLayer, TokenBucket};
fn main() {
    let limit = RateLimitLayer::new(
        |req: &Request| {
            let path = req.uri().path().to_owned();
            async move { path }
        },
        TokenBucket::new(Quota::per_second(1)),
    );
    let _: Router = Router::new().route("/", get(|| async {})).layer(limit);
}
