//! A gRPC service keeps its name behind a limit.

use tonic::server::NamedService;

use super::service::RateLimit;

/// So that a single service of a tonic server can be limited: the router asks for its name.
impl<S: NamedService, K, L, R> NamedService for RateLimit<S, K, L, R> {
    const NAME: &'static str = S::NAME;
}
