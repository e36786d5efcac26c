//~ for a service that is not HTTP add `.respond(AsError)`
use tower::{BoxError, Layer, Service, service_fn};
use tower_throttle::{Global, Quota, RateLimitLayer, TokenBucket};

fn serve<S: Service<u64>>(_: S) {}

fn main() {
    let layer = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_second(10)));
    serve(layer.layer(service_fn(async |n: u64| Ok::<u64, BoxError>(n))));
}
