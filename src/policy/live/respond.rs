//! What clients are told by the limits of a file, and what counts.

use std::any::Any;

use http::{HeaderMap, HeaderValue, Response, header::CONTENT_TYPE};

use crate::decision::Decision;
use crate::policy::file::FileLimit;
use crate::respond::{Policies, Settle, SettleResult, Tell};

/// Responses state, and requests count, as each limit of a policy file says.
///
/// A request whose response is known counts or not:
///
/// | the response | with `failure` | without |
/// |---|---|---|
/// | of a limit inside the layer that denied or rejected the request | is given back | is given back |
/// | a status in `failure` | counts | counts |
/// | any other below 400 | is given back as a success | counts |
/// | any other | is given back | counts |
/// | of gRPC, with its status in trailers | is given back | counts |
/// | none: an error of the service, or the client left | counts | counts |
///
/// The status of a gRPC response whose header `grpc-status` is not 0 is the HTTP status of that code: 401
/// of `unauthenticated`, 403 of `permission_denied`. A status in trailers is not known when the cost is
/// settled.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsInFile;

/// The limit of the file, if it is one.
fn limit(rules: Option<&dyn Any>) -> Option<&FileLimit> {
    rules?.downcast_ref()
}

impl<B> Tell<Response<B>> for AsInFile {
    fn tell(
        &self,
        rules: Option<&dyn Any>,
        response: &mut Response<B>,
        policies: &Policies,
        decision: &Decision,
    ) {
        if let Some(headers) = limit(rules).and_then(|limit| limit.headers.headers()) {
            headers.tell(None, response, policies, decision);
        }
    }
}

impl<B, Err> SettleResult<Response<B>, Err> for AsInFile {
    fn settle(&self, rules: Option<&dyn Any>, result: Result<&Response<B>, &Err>) -> Settle {
        let (Some(limit), Ok(response)) = (limit(rules), result) else {
            return Settle::Keep;
        };
        if limit.failure.is_empty() {
            return Settle::Keep;
        }
        let status = match response.status().as_u16() {
            status @ 400.. => Some(status),
            status => status_of_grpc(status, response.headers()),
        };
        match status.unwrap_or_else(|| response.status().as_u16()) {
            status if limit.failure.iter().any(|one| one.0 == u64::from(status)) => Settle::Keep,
            400.. => Settle::Refund,
            // Not yet a success: the trailers may hold a failure.
            _ if status.is_none() => Settle::Refund,
            _ => Settle::Forgive,
        }
    }
}

/// The HTTP status of each code of gRPC.
const STATUSES: [u16; 17] = [
    200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401,
];

/// The HTTP status of a gRPC response, or `status` if there is no gRPC. `None` if it is in trailers.
fn status_of_grpc(status: u16, headers: &HeaderMap) -> Option<u16> {
    let is_grpc = || {
        let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
    };
    let Some(code) = headers.get("grpc-status") else {
        return (!is_grpc()).then_some(status);
    };
    let code = code.to_str().ok().and_then(|code| code.parse().ok());
    match code.unwrap_or(usize::MAX) {
        0 => Some(status),
        code => STATUSES.get(code).copied().or(Some(500)),
    }
}
