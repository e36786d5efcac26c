//~ expected `SlidingLog`, found `TokenBucket`
use tower_throttle::{Global, Quota, RateLimitLayer, SlidingLog, TokenBucket};
fn main() {
    let strict = std::env::args().count() > 1;
    let quota = Quota::per_second(1);
    let limit = if strict { SlidingLog::new(quota) } else { TokenBucket::new(quota) };
    let _ = RateLimitLayer::new(Global, limit);
}
