//! A gRPC status for gRPC requests, an HTTP response for all others.

use std::time::Duration;

use http::{Request, Response};

use super::grpc::{Grpc, content_type, is_grpc, trailers_only};
use super::http::{
    HeadersOnly, error_body, is_denial, note, plain, response_from_request, timeout,
};
use super::{Respond, Standard};
use crate::decision::Decision;
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
    fn deny(&self, request: &Request<A>, denied: RateLimited) -> Result<Response<B>, Err> {
        if is_grpc(request) {
            Grpc.deny(request, denied)
        } else {
            self.others.deny(request, denied)
        }
    }

    fn refuse(&self, request: Request<A>, denied: RateLimited) -> Result<Response<B>, Err> {
        if is_grpc(&request) {
            Grpc.refuse(request, denied)
        } else {
            self.others.refuse(request, denied)
        }
    }

    fn admit(&self, request: &mut Request<A>, decision: &Decision) {
        self.others.admit(request, decision);
    }

    fn timeout(&self, request: &Request<A>) -> Option<Duration> {
        self.others.timeout(request)
    }

    fn is_denial(&self, response: &Response<B>) -> bool {
        is_denial(response)
    }
}

impl<A, B: Default + 'static, Err> Respond<Request<A>, Response<B>, Err> for Standard {
    fn deny(&self, request: &Request<A>, denied: RateLimited) -> Result<Response<B>, Err> {
        if is_grpc(request) {
            return Grpc.deny(request, denied);
        }
        let text = denied.rejection().map(ToString::to_string);
        let mut response = HeadersOnly.deny(request, denied)?;
        if let Some(text) = text {
            error_body(&mut response, text);
        }
        Ok(response)
    }

    #[expect(
        clippy::inline_always,
        reason = "the layer calls it in one place, and a call would copy the request"
    )]
    #[inline(always)]
    fn refuse(&self, request: Request<A>, denied: RateLimited) -> Result<Response<B>, Err> {
        let grpc = is_grpc(&request).then(|| content_type(request.headers()));
        let text = denied.rejection().map(ToString::to_string);
        // Made here for both kinds of answer, because each further call would copy the request.
        let mut response = response_from_request(request, B::default());
        match (grpc, text) {
            (Some(media), _) => trailers_only(&mut response, media, denied),
            (None, None) => plain(&mut response, denied),
            (None, Some(text)) => {
                plain(&mut response, denied);
                error_body(&mut response, text);
            }
        }
        Ok(response)
    }

    fn admit(&self, request: &mut Request<A>, decision: &Decision) {
        note(request, decision);
    }

    fn timeout(&self, request: &Request<A>) -> Option<Duration> {
        timeout(request)
    }

    fn is_denial(&self, response: &Response<B>) -> bool {
        is_denial(response)
    }
}
