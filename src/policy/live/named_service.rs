//! The name of a gRPC service behind the limits of a file.

use tonic::server::NamedService;

use super::service::PolicyService;

/// tonic's router needs the name to route to a single service with limits.
impl<S: NamedService> NamedService for PolicyService<S> {
    const NAME: &'static str = S::NAME;
}
