//~ a queue is a setting of the algorithm, not of the layer: write `LeakyBucket::new(quota).queue(n)`
use tower_throttle::{Global, LeakyBucket, Quota, RateLimitLayer};
fn main() {
    let _ = RateLimitLayer::new(Global, LeakyBucket::new(Quota::per_second(1))).queue(20);
}
