//! Responses without a body, and responses made by a closure.

use http::{Request, Response, header};

use super::rejection::error_header;
use super::response::{finish, no_store, plain, response_from_request, retry_after};
use crate::error::RateLimited;
use crate::respond::{Http, Respond};

/// The status, `Retry-After` and `Cache-Control: no-store`; no body. A rejection has its text in `x-ratelimit-error`.
///
/// The body is the service's own type, which has to be `Default`: the bodies of axum, tonic and
/// http-body-util are.
///
/// ```
/// use axum::{Router, body::Body, extract::Request, routing::get};
/// use tower::ServiceExt;
/// use tower_throttle::{Global, Quota, RateLimitLayer, TokenBucket, respond::HeadersOnly};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let layer = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_minute(1)))
///     .respond(HeadersOnly);
/// let app: Router = Router::new().route("/", get(|| async {})).layer(layer);
/// let _admitted = app.clone().oneshot(Request::new(Body::empty())).await;
/// let denied = app.oneshot(Request::new(Body::empty())).await.unwrap();
/// assert_eq!(denied.status(), 429);
/// assert_eq!(denied.headers()["retry-after"], "60");
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadersOnly;

impl<A, B: Default, Err> Respond<Request<A>, Response<B>, Err> for HeadersOnly {
    type Protocol = Http;

    fn deny(&self, request: Request<A>, denied: RateLimited) -> Result<Response<B>, Err> {
        let mut response = response_from_request(request, B::default());
        plain(&mut response, denied);
        Ok(response)
    }
}

/// A closure from the request and the reason to the response. A `Retry-After` that it has not set is
/// added, and a `Cache-Control` as well: `no-store`.
impl<A, B, Err, F> Respond<Request<A>, Response<B>, Err> for F
where
    F: Fn(&Request<A>, &RateLimited) -> Response<B>,
{
    type Protocol = Http;

    fn deny(&self, request: Request<A>, denied: RateLimited) -> Result<Response<B>, Err> {
        let mut response = self(&request, &denied);
        if !response.headers().contains_key(header::RETRY_AFTER) {
            retry_after(response.headers_mut(), &denied);
        }
        if !response.headers().contains_key(header::CACHE_CONTROL) {
            no_store(response.headers_mut());
        }
        error_header(response.headers_mut(), &denied);
        finish(response.extensions_mut(), denied);
        Ok(response)
    }
}
