//! Answers to refused HTTP requests.

use std::time::Duration;

use http::{Request, Response, header};

use super::deadline::timeout;
use super::digits::digits;
use super::grpc::{Grpc, is_grpc};
use crate::decision::Decision;
use crate::error::RateLimited;
use crate::respond::Respond;
use crate::respond::Standard;

/// The status and `Retry-After`; no body.
///
/// The body is the service's own type, which has to be `Default`: the bodies of axum, tonic and
/// http-body-util are.
///
/// ```
/// use http::{Request, Response};
/// use tower_throttle::{HeadersOnly, Limiter, Quota, RateLimited, Respond, TokenBucket};
///
/// let limiter = Limiter::new(TokenBucket::new(Quota::per_minute(1)));
/// limiter.check();
/// let denied = RateLimited::new(limiter.check());
/// let answer: Result<Response<String>, ()> = HeadersOnly.deny(&Request::new(()), denied);
/// let answer = answer.unwrap();
/// assert_eq!(answer.status(), 429);
/// assert_eq!(answer.headers()["retry-after"], "60");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadersOnly;

impl<A, B: Default, Err> Respond<Request<A>, Response<B>, Err> for HeadersOnly {
    fn deny(&self, _: &Request<A>, denied: RateLimited) -> Result<Response<B>, Err> {
        Ok(plain(Response::new(B::default()), denied))
    }

    fn refuse(&self, request: Request<A>, denied: RateLimited) -> Result<Response<B>, Err> {
        Ok(plain(instead_of(request, B::default()), denied))
    }

    fn admit(&self, request: &mut Request<A>, decision: &Decision) {
        note(request, decision);
    }

    fn timeout(&self, request: &Request<A>) -> Option<Duration> {
        timeout(request)
    }
}

/// A gRPC answer to a gRPC request, and another one to the rest.
///
/// A request is gRPC if its content type begins with `application/grpc`. So one layer serves an
/// application that speaks both.
///
/// ```
/// use tower_throttle::{Auto, Global, ProblemJson, Quota, RateLimitLayer, TokenBucket};
///
/// let layer = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_second(100)))
///     .respond(Auto::with(ProblemJson));
/// # let _: axum::Router = axum::Router::new().layer(layer);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Auto<H = HeadersOnly> {
    others: H,
}

impl<H> Auto<H> {
    /// `others` answers requests that are not gRPC.
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
}

impl<A, B: Default, Err> Respond<Request<A>, Response<B>, Err> for Standard {
    fn deny(&self, request: &Request<A>, denied: RateLimited) -> Result<Response<B>, Err> {
        Auto::<HeadersOnly>::default().deny(request, denied)
    }

    fn refuse(&self, request: Request<A>, denied: RateLimited) -> Result<Response<B>, Err> {
        Auto::<HeadersOnly>::default().refuse(request, denied)
    }

    fn admit(&self, request: &mut Request<A>, decision: &Decision) {
        note(request, decision);
    }

    fn timeout(&self, request: &Request<A>) -> Option<Duration> {
        timeout(request)
    }
}

/// A closure from the request and the reason to the response. Status and body are its own; a
/// `Retry-After` that it has not set is added.
impl<A, B, Err, F> Respond<Request<A>, Response<B>, Err> for F
where
    F: Fn(&Request<A>, &RateLimited) -> Response<B>,
{
    fn deny(&self, request: &Request<A>, denied: RateLimited) -> Result<Response<B>, Err> {
        let mut response = self(request, &denied);
        if !response.headers().contains_key(header::RETRY_AFTER) {
            retry_after(&mut response, &denied);
        }
        Ok(finished(response, denied))
    }

    fn admit(&self, request: &mut Request<A>, decision: &Decision) {
        note(request, decision);
    }

    fn timeout(&self, request: &Request<A>) -> Option<Duration> {
        timeout(request)
    }
}

/// Leaves the decision where the handler finds it.
pub(super) fn note<A>(request: &mut Request<A>, decision: &Decision) {
    request.extensions_mut().insert(*decision);
}

/// A response in place of `request`, in the maps for headers and extensions that the request has
/// and no longer needs: to make new ones would be most of what a refusal costs.
pub(super) fn instead_of<A, B>(request: Request<A>, body: B) -> Response<B> {
    let (parts, _) = request.into_parts();
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    *headers = parts.headers;
    headers.clear();
    let extensions = response.extensions_mut();
    *extensions = parts.extensions;
    extensions.clear();
    response
}

/// Gives `response` the status, `Retry-After` and the reason.
pub(super) fn plain<B>(mut response: Response<B>, denied: RateLimited) -> Response<B> {
    *response.status_mut() = denied.status();
    retry_after(&mut response, &denied);
    finished(response, denied)
}

/// `response` with the reason in its extensions, where outer layers find it.
pub(super) fn finished<B>(mut response: Response<B>, denied: RateLimited) -> Response<B> {
    response.extensions_mut().insert(denied);
    response
}

/// When to come back, if coming back helps.
pub(super) fn retry_after<B>(response: &mut Response<B>, denied: &RateLimited) {
    if let Some(wait) = denied.retry_after() {
        let seconds = digits(whole_seconds(wait).clamp(1, MAX_SECONDS));
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
}

/// The longest time that is told; many clients read 32 bits.
pub(super) const MAX_SECONDS: u64 = i32::MAX as u64;

/// Rounded up: who comes when the rounded time has passed finds the request admitted.
pub(super) const fn whole_seconds(span: Duration) -> u64 {
    span.as_secs()
        .saturating_add((span.subsec_nanos() > 0) as u64)
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::decision::Verdict;

    fn denied(retry_after: Option<Duration>) -> RateLimited {
        let mut decision = Decision::new(Verdict::Deny, 10, 0, None, 0);
        decision.retry_after = retry_after;
        RateLimited::new(decision)
    }

    fn told(retry_after: Option<Duration>) -> Option<String> {
        let response = plain(Response::new(()), denied(retry_after));
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        let value = response.headers().get(header::RETRY_AFTER)?;
        Some(value.to_str().unwrap().to_owned())
    }

    #[test]
    fn retry_after_is_rounded_up_and_at_least_one_and_fits_32_bits() {
        for (wait, expected) in [
            (Duration::ZERO, "1"),
            (Duration::from_nanos(1), "1"),
            (Duration::from_millis(999), "1"),
            (Duration::from_secs(1), "1"),
            (Duration::from_nanos(1_000_000_001), "2"),
            (Duration::from_secs(59), "59"),
            (Duration::from_secs(1 << 40), "2147483647"),
            (Duration::MAX, "2147483647"),
        ] {
            assert_eq!(told(Some(wait)).as_deref(), Some(expected), "{wait:?}");
        }
    }

    #[test]
    fn a_cost_that_never_passes_is_told_no_time() {
        assert_eq!(told(None), None);
    }
}
