//~ all tiers have limits of one type: make each an `AnyAlgorithm::from(..)`
use tower_throttle::{Quota, SlidingLog, Tiers, TokenBucket};
fn main() {
    let quota = Quota::per_second(1);
    let _ = Tiers::new(TokenBucket::new(quota)).tier("pro", SlidingLog::new(quota));
}
