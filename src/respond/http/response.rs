//! What all HTTP responses to denied requests have in common.

use std::time::Duration;

use http::{Extensions, HeaderMap, Request, Response, header, request, response};

use super::header_text::{digits, set_header};
use super::rejection::error_header;
use crate::decision::Decision;
use crate::error::RateLimited;

/// Stores the decision in the request's extensions.
pub(in crate::respond) fn note<A>(request: &mut Request<A>, decision: &Decision) {
    request.extensions_mut().insert(*decision);
}

/// A response that reuses the header and extension maps of `request`: allocating new ones would be
/// most of the cost of a denial.
pub(in crate::respond) fn response_from_request<A, B>(request: Request<A>, body: B) -> Response<B> {
    let (parts, _) = request.into_parts();
    let mut response = Response::new(body);
    (*response.headers_mut(), *response.extensions_mut()) = cleared_maps(parts);
    response
}

// The functions that are not generic are not inlined either: a program has one copy of each.

#[inline(never)]
fn cleared_maps(mut parts: request::Parts) -> (HeaderMap, Extensions) {
    parts.headers.clear();
    parts.extensions.clear();
    (parts.headers, parts.extensions)
}

/// Sets the status, `Retry-After` and the reason of `response`.
pub(in crate::respond) fn plain<B>(response: Response<B>, denied: RateLimited) -> Response<B> {
    let (mut parts, body) = response.into_parts();
    set_plain(&mut parts, denied);
    Response::from_parts(parts, body)
}

#[inline(never)]
fn set_plain(parts: &mut response::Parts, denied: RateLimited) {
    parts.status = denied.status();
    retry_after(&mut parts.headers, &denied);
    error_header(&mut parts.headers, &denied);
    finish(&mut parts.extensions, denied);
}

/// Stores the reason in the extensions of a response, for outer layers.
#[inline(never)]
pub(in crate::respond) fn finish(extensions: &mut Extensions, denied: RateLimited) {
    extensions.insert(denied);
}

/// Sets `Retry-After`, if a retry helps.
pub(in crate::respond) fn retry_after(headers: &mut HeaderMap, denied: &RateLimited) {
    if let Some(wait) = denied.retry_after() {
        let seconds = digits(ceil_seconds(wait).clamp(1, MAX_SECONDS));
        set_header(headers, header::RETRY_AFTER, seconds);
    }
}

/// The longest time that is sent; many clients read 32 bits.
pub(in crate::respond) const MAX_SECONDS: u64 = i32::MAX as u64;

/// Rounded up: after the rounded time the request is admitted.
pub(in crate::respond) const fn ceil_seconds(span: Duration) -> u64 {
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

    fn header(retry_after: Option<Duration>) -> Option<String> {
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
            assert_eq!(header(Some(wait)).as_deref(), Some(expected), "{wait:?}");
        }
    }

    #[test]
    fn an_oversized_cost_gets_no_retry_after() {
        assert_eq!(header(None), None);
    }
}
