//~ `str` is not a key of this layer: its keys are of type `Client`
use tower_throttle::{ClientIp, Quota, RateLimitLayer, TokenBucket};

fn main() {
    let layer = RateLimitLayer::new(ClientIp::peer(), TokenBucket::new(Quota::per_second(10)));
    layer.handle().charge("127.0.0.1", 5);
}
