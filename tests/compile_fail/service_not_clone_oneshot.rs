//~ the service is `Clone`, its body `Default`; not HTTP: `.respond(AsError)`, `.map_err(BoxError::from)`
use std::{convert::Infallible, future::{Ready, ready}, task::{Context, Poll}};
use axum::{body::Body, extract::Request, response::Response};
use tower::{Layer, Service, ServiceExt};
use tower_throttle::{Global, Quota, RateLimitLayer, TokenBucket};

struct Unique;
impl Service<Request> for Unique {
    type Response = Response;
    type Error = Infallible;
    type Future = Ready<Result<Response, Infallible>>;
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> { Poll::Ready(Ok(())) }
    fn call(&mut self, _: Request) -> Self::Future { ready(Ok(Response::new(Body::empty()))) }
}
fn main() {
    let limit = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_second(1)));
    drop(limit.layer(Unique).oneshot(Request::new(Body::empty())));
}
