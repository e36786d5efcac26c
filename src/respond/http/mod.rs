//! HTTP responses: status, headers and bodies.

mod figures;
mod grpc_timeout;
mod header_text;
mod headers;
mod headers_only;
mod preflight;
mod problem;
mod rejection;
mod response;

pub(super) use self::{
    grpc_timeout::timeout,
    header_text::{digits, set_header},
    rejection::error_body,
    response::{finish, is_denial, no_store, note, plain, response_from_request, retry_after},
};
pub use self::{
    headers::Headers, headers_only::HeadersOnly, preflight::Preflight, problem::ProblemJson,
};
