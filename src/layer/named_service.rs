//! The name of a limited gRPC service.

use tonic::server::NamedService;

use super::service::RateLimit;

/// tonic's router needs the name to route to a single service with a limit.
impl<S: NamedService, K, L, R> NamedService for RateLimit<S, K, L, R> {
    const NAME: &'static str = S::NAME;
}
