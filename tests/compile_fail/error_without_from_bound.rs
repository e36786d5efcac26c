//~ `AsError` cannot make a `ForeignError`: turn it into a `BoxError` by `.map_err(tower::BoxError::from)`
use tower::{Layer, Service, service_fn};
use tower_throttle::{AsError, Global, Quota, RateLimitLayer, TokenBucket};

/// An error of another crate, such as reqwest's.
#[derive(Debug)]
struct ForeignError;

fn serve<S: Service<u64>>(_: S) {}

fn main() {
    let layer = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_second(10))).respond(AsError);
    serve(layer.layer(service_fn(async |n: u64| Ok::<u64, ForeignError>(n))));
}
