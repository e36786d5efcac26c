//! A gRPC status for gRPC requests, an HTTP response for all others.

use http::{Request, Response};

use super::grpc::{Grpc, is_grpc};
use super::http::{HeadersOnly, error_body};
use super::{Http, Respond, Standard};
use crate::error::RateLimited;

/// Answers gRPC requests with a gRPC status, and all others in another way.
///
/// A request is gRPC if its specification says so: it is a `POST` with the content type `application/grpc`
/// and `te: trailers`, or with that of gRPC-Web. So one layer serves an application that speaks both, and a
/// client cannot turn a 429 into a 200 that a cache would store. Behind a proxy that removes `te`, which
/// gRPC requires, use [`Grpc`].
///
/// ```
/// use axum::{Router, body::Body, extract::Request, routing::get};
/// use tower::ServiceExt;
/// use tower_throttle::{FixedWindow, Global, ProblemJson, Quota, RateLimitLayer, respond::Auto};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let layer = RateLimitLayer::new(Global, FixedWindow::new(Quota::per_day(1)))
///     .respond(Auto::with(ProblemJson));
/// let app: Router = Router::new().route("/", get(|| async {})).layer(layer);
/// let _admitted = app.clone().oneshot(Request::new(Body::empty())).await;
/// let denied = app.clone().oneshot(Request::new(Body::empty())).await.unwrap();
/// assert_eq!(denied.headers()["content-type"], "application/problem+json");
///
/// let grpc = Request::post("/").header("content-type", "application/grpc").header("te", "trailers");
/// let denied = app.oneshot(grpc.body(Body::empty()).unwrap()).await.unwrap();
/// assert_eq!(denied.headers()["grpc-status"], "8");
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Auto<H = HeadersOnly> {
    others: H,
}

impl<H> Auto<H> {
    /// Answers requests that are not gRPC with `others`.
    pub const fn with(others: H) -> Self {
        Self { others }
    }
}

impl<A, B, Err, H> Respond<Request<A>, Response<B>, Err> for Auto<H>
where
    B: Default,
    H: Respond<Request<A>, Response<B>, Err>,
{
    type Protocol = Http;

    fn deny(&self, request: Request<A>, denied: RateLimited) -> Result<Response<B>, Err> {
        if is_grpc(&request) {
            Grpc.deny(request, denied)
        } else {
            self.others.deny(request, denied)
        }
    }
}

impl<A, B: Default + 'static, Err> Respond<Request<A>, Response<B>, Err> for Standard {
    type Protocol = Http;

    fn deny(&self, request: Request<A>, denied: RateLimited) -> Result<Response<B>, Err> {
        if is_grpc(&request) {
            return Grpc.deny(request, denied);
        }
        // The denials of a limit are frequent, and their headers say it all.
        let text = denied.decision().is_none().then(|| denied.to_string());
        let mut response = HeadersOnly.deny(request, denied)?;
        if let Some(text) = text {
            error_body(&mut response, text);
        }
        Ok(response)
    }
}
