//~ not HTTP: `.respond(AsError)`, `.release_at_response()`, a `BoxError`
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{AsError, Global, Quota, RateLimitLayer, TokenBucket};

/// An error of another crate, such as reqwest's.
#[derive(Debug)]
struct ForeignError;

fn main() {
    let layer = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_second(10))).respond(AsError);
    let service = layer.layer(service_fn(async |n: u64| Ok::<u64, ForeignError>(n)));
    drop(service.oneshot(7));
}
