//! The default response, and responses made by a closure.

use http::{Request, Response, header};

use super::rejection::error_header;
use super::response::{no_store, plain, response_from_request, retry_after};
use crate::error::RateLimited;
use crate::respond::{Grpc, Http, Respond, Standard, is_grpc};

impl<A, B: Default, Err> Respond<Request<A>, Response<B>, Err> for Standard {
    type Protocol = Http;

    fn deny(&self, request: Request<A>, denied: RateLimited) -> Result<Response<B>, Err> {
        if is_grpc(&request) {
            return Grpc.deny(request, denied);
        }
        // The denials of a limit are frequent, and their headers say it all.
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
        response.extensions_mut().insert(denied);
        Ok(response)
    }
}
