//~ an HTTP response needs a body that is `Default`
use http::{Request, Response};
use hyper::body::Incoming;
use tower::{BoxError, Layer, Service, service_fn};
use tower_throttle::{Global, Quota, RateLimitLayer, TokenBucket};

fn serve<S: Service<Request<()>>>(_: S) {}
fn main() {
    let limit = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_second(1)));
    serve(limit.layer(service_fn(async |_: Request<()>| Err::<Response<Incoming>, BoxError>("closed".into()))));
}
