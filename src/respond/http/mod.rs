//! HTTP responses: status, headers and bodies.

mod grpc_timeout;
mod header_text;
mod headers;
mod preflight;
mod problem;
mod rejection;
mod response;
mod standard;

pub(super) use self::{
    grpc_timeout::grpc_timeout,
    header_text::header_value,
    response::{no_store, response_from_request, retry_after},
};
pub use self::{headers::Headers, preflight::Preflight, problem::ProblemJson};
