//~ `PerKey` a source that is asked about these keys, or about a `String`
use axum::{Router, routing::get};
use tower_throttle::store::{PerKey, Plan};
use tower_throttle::{HeaderKey, Quota, RateLimitLayer, StoreError, TokenBucket};
fn main() {
    let bucket = TokenBucket::new(Quota::per_second(1));
    let plans = PerKey::new(bucket, |_: u64| async { Ok::<_, StoreError>(Plan::Default) });
    let limit = RateLimitLayer::new(HeaderKey::new("x-customer"), plans);
    let _: Router = Router::new().route("/", get(|| async {})).layer(limit);
}
