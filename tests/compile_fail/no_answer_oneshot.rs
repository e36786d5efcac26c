//~ the service is `Clone`, its body `Default`; not HTTP: `.respond(AsError)`, `.map_err(BoxError::from)`
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::{Global, Quota, RateLimitLayer, TokenBucket};

fn main() {
    let layer = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_second(10)));
    let service = layer.layer(service_fn(async |n: u64| Ok::<u64, BoxError>(n)));
    drop(service.oneshot(7));
}
