//! What all HTTP responses to denied requests have in common.

use std::time::Duration;

use http::{Request, Response, header};

use super::header_text::digits;
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
    let headers = response.headers_mut();
    *headers = parts.headers;
    headers.clear();
    let extensions = response.extensions_mut();
    *extensions = parts.extensions;
    extensions.clear();
    response
}

/// Sets the status, `Retry-After` and the reason of `response`.
pub(in crate::respond) fn plain<B>(mut response: Response<B>, denied: RateLimited) -> Response<B> {
    *response.status_mut() = denied.status();
    retry_after(&mut response, &denied);
    error_header(&mut response, &denied);
    finished(response, denied)
}

/// Stores the reason in the extensions of `response`, for outer layers.
pub(in crate::respond) fn finished<B>(
    mut response: Response<B>,
    denied: RateLimited,
) -> Response<B> {
    response.extensions_mut().insert(denied);
    response
}

/// Sets `Retry-After`, if a retry helps.
pub(in crate::respond) fn retry_after<B>(response: &mut Response<B>, denied: &RateLimited) {
    if let Some(wait) = denied.retry_after() {
        let seconds = digits(ceil_seconds(wait).clamp(1, MAX_SECONDS));
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
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
