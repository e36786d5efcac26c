//~ `Quotas` needs a lookup that is asked about these keys
use axum::{Router, routing::get};
use tower_throttle::store::{Plan, Quotas};
use tower_throttle::{HeaderKey, Quota, RateLimitLayer, TokenBucket};
fn main() {
    let bucket = TokenBucket::new(Quota::per_second(1));
    let plans = Quotas::new(bucket, |_: &u64| Plan::Default);
    let limit = RateLimitLayer::new(HeaderKey::new("x-customer"), plans);
    let _: Router = Router::new().route("/", get(|| async {})).layer(limit);
}
