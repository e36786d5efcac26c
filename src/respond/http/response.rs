//! What all HTTP responses to denied requests have in common.

use std::mem;

use http::{HeaderMap, HeaderValue, Request, Response, header};

use super::header_text::header_value;
use super::rejection::error_header;
use crate::error::RateLimited;

/// A response that reuses the header and extension maps of `request`: allocating new ones would be
/// most of the cost of a denial.
pub(in crate::respond) fn response_from_request<A, B>(
    mut request: Request<A>,
    body: B,
) -> Response<B> {
    // Changed in place: a copy of all parts takes longer than what is done to them.
    let mut response = Response::new(body);
    mem::swap(request.headers_mut(), response.headers_mut());
    mem::swap(request.extensions_mut(), response.extensions_mut());
    response.headers_mut().clear();
    response.extensions_mut().clear();
    response
}

/// Sets the status, `Retry-After`, `Cache-Control` and the reason of `response`.
pub(super) fn plain<B>(response: &mut Response<B>, denied: RateLimited) {
    *response.status_mut() = denied.status();
    let headers = response.headers_mut();
    retry_after(headers, &denied);
    no_store(headers);
    error_header(headers, &denied);
    response.extensions_mut().insert(denied);
}
/// Keeps shared caches from serving the denial of one client to others. Some statuses, such as 200 of gRPC
/// and 410, may be stored unless a response forbids it.
pub(in crate::respond) fn no_store(headers: &mut HeaderMap) {
    let value = HeaderValue::from_static("no-store");
    headers.insert(header::CACHE_CONTROL, value);
}

/// Sets `Retry-After`, if a retry helps.
pub(in crate::respond) fn retry_after(headers: &mut HeaderMap, denied: &RateLimited) {
    if let Some(seconds) = denied.retry_after_secs() {
        let seconds = header_value(format_args!("{seconds}"));
        headers.insert(header::RETRY_AFTER, seconds);
    }
}
