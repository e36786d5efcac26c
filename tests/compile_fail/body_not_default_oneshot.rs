//~ the service is `Clone`, its body `Default`; not HTTP: `.respond(AsError)`, `.map_err(BoxError::from)`
use http::{Request, Response};
use hyper::body::Incoming;
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_throttle::{Global, Quota, RateLimitLayer, TokenBucket};

fn main() {
    let limit = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_second(1)));
    let service = limit.layer(service_fn(async |_: Request<()>| Err::<Response<Incoming>, BoxError>("closed".into())));
    drop(service.oneshot(Request::new(())));
}
