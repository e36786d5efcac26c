//! CORS preflight requests.

use http::{Method, Request, header};

use crate::key::{Predicate, Rejection};

/// True for CORS preflight requests: `OPTIONS` with `Origin` and `Access-Control-Request-Method`.
///
/// A browser sends one before the actual request, and the page breaks if it is denied. Put a CORS
/// layer outside of the limit as well: otherwise the scripts of a page cannot read the denial.
/// `Access-Control-Expose-Headers` then names the headers that they may read:
/// `Retry-After`, `RateLimit` and `RateLimit-Policy`.
///
/// Any client can send the two headers: with `.skip(Preflight)`, a handler that serves `OPTIONS`, such as
/// `axum::routing::any`, is not limited for `OPTIONS`.
///
/// ```
/// use axum::{Router, routing::get};
/// use tower_throttle::{Global, Quota, RateLimitLayer, TokenBucket, respond::Preflight};
///
/// let layer = RateLimitLayer::new(Global, TokenBucket::new(Quota::per_second(100))).skip(Preflight);
/// let app: Router = Router::new().route("/", get(|| async {})).layer(layer);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Preflight;

impl<B> Predicate<Request<B>> for Preflight {
    fn matches(&self, request: &Request<B>) -> Result<bool, Rejection> {
        let headers = request.headers();
        Ok(request.method() == Method::OPTIONS
            && headers.contains_key(header::ORIGIN)
            && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Preflight` does not count the preflight requests of browsers.
    #[test]
    fn a_preflight_request_has_its_method_and_both_headers() {
        for case in 0..8 {
            let mut request = Request::new(());
            if case & 1 > 0 {
                *request.method_mut() = Method::OPTIONS;
            }
            let names = [header::ORIGIN, header::ACCESS_CONTROL_REQUEST_METHOD];
            for (bit, name) in [2, 4].into_iter().zip(names) {
                if case & bit > 0 {
                    request.headers_mut().insert(name, "x".parse().unwrap());
                }
            }
            assert_eq!(Preflight.matches(&request), Ok(case == 7), "{case:03b}");
        }
    }
}
