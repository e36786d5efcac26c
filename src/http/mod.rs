//! What HTTP adds: whose request it is, and what a client is told.

mod answer;
mod client_ip;
mod deadline;
mod digits;
mod forwarded;
mod grpc;
mod header_key;
mod headers;
#[cfg(feature = "axum")]
mod matched_path;
mod missing;
mod network;
mod peer;
mod preflight;
mod problem;
mod protobuf;

#[cfg(feature = "axum")]
pub use self::matched_path::{MatchedPath, Route};
pub use self::{
    answer::{Auto, HeadersOnly},
    client_ip::{ClientIp, Forwarded},
    grpc::Grpc,
    header_key::{BearerToken, Extension, FromExtension, HeaderKey, Secret},
    headers::Headers,
    missing::Missing,
    network::Client,
    peer::PeerAddr,
    preflight::Preflight,
    problem::ProblemJson,
};
