//! HTTP responses: status, headers and bodies.

mod grpc_timeout;
mod header_text;
mod headers;
mod headers_only;
mod preflight;
mod problem;
mod rejection;
mod response;

pub(super) use self::{
    grpc_timeout::grpc_timeout,
    header_text::{header_value, set_header},
    rejection::error_body,
    response::{finish, no_store, response_from_request, retry_after},
};
pub use self::{
    headers::Headers, headers_only::HeadersOnly, preflight::Preflight, problem::ProblemJson,
};
