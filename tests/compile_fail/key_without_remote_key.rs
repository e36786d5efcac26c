//~ `Tenant` cannot be a key in a remote store: write `impl RemoteKey for Tenant`

use axum::{Router, extract::Request, routing::get};
use tower_throttle::{Quota, RateLimitLayer, TokenBucket, key::Key, store::redis::Redis};
#[derive(Clone, Hash)]
struct Tenant(u32);
impl Key for Tenant {}
fn main() {
    let redis = Redis::open("redis://127.0.0.1").unwrap();
    let limit = RateLimitLayer::new(
        |_: &Request| Tenant(1),
        redis.limiter("a", TokenBucket::new(Quota::per_second(1))),
    );
    let _: Router = Router::new().route("/", get(|| async {})).layer(limit);
}
