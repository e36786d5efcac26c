//! The requests with which browsers ask for permission.

use http::{Method, Request, header};

use crate::key::Predicate;

/// Holds for CORS preflights: `OPTIONS` with `Origin` and `Access-Control-Request-Method`.
///
/// A browser sends them by itself before the request that was meant, and one that is refused
/// breaks the page. Put a CORS layer outside of the limit as well, or the scripts of a page cannot
/// read the refusal; `Access-Control-Expose-Headers` then names the headers they may read:
/// `Retry-After`, `RateLimit` and `RateLimit-Policy`.
///
/// ```
/// use tower_throttle::{key::Predicate, respond::Preflight};
///
/// let request = http::Request::builder()
///     .method("OPTIONS")
///     .header("origin", "https://example.org")
///     .header("access-control-request-method", "PUT")
///     .body(())
///     .unwrap();
/// assert!(Preflight.matches(&request));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Preflight;

impl<B> Predicate<Request<B>> for Preflight {
    fn matches(&self, request: &Request<B>) -> bool {
        let headers = request.headers();
        request.method() == Method::OPTIONS
            && headers.contains_key(header::ORIGIN)
            && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
    }
}
