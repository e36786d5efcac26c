//! What a layer needs to know of requests and responses.

use std::time::Duration;

use http::{Request, Response};

use super::cost::CostHandle;
use super::http::grpc_timeout;
use crate::decision::Decision;
use crate::error::RateLimited;

/// What a layer needs to know of requests and responses, whatever the responder. The defaults know nothing.
pub(crate) trait Protocol<Req, Res> {
    /// Stores the decision in a request that goes on to the service; see
    /// [`share_decision`](crate::RateLimitLayer::share_decision).
    fn share(_: &mut Req, _: &Decision) {}

    /// Stores what says the cost in a request that goes on to the service; see
    /// [`AtEnd`](super::AtEnd).
    fn share_cost(_: &mut Req, _: CostHandle) {}

    /// How long the client of a request will wait for the answer, if the request says so.
    ///
    /// A request whose turn would come later is denied at once. Called only for requests that have
    /// to wait.
    fn timeout(_: &Req) -> Option<Duration> {
        None
    }

    /// Whether a response is the denial of a limit inside this one. It is then
    /// [settled](super::Settle) by that and not by its status.
    fn is_denial(_: &Res) -> bool {
        false
    }
}

/// HTTP and gRPC: decisions and denials are extensions, and `grpc-timeout` is the client's timeout.
#[derive(Clone, Copy, Debug)]
pub struct Http;

impl<A, B> Protocol<Request<A>, Response<B>> for Http {
    fn share(request: &mut Request<A>, decision: &Decision) {
        request.extensions_mut().insert(*decision);
    }

    fn share_cost(request: &mut Request<A>, cost: CostHandle) {
        let extensions = request.extensions_mut();
        // That of a layer further out.
        let outer = extensions.remove();
        extensions.insert(cost.and(outer));
    }

    fn timeout(request: &Request<A>) -> Option<Duration> {
        grpc_timeout(request.headers())
    }

    fn is_denial(response: &Response<B>) -> bool {
        response.extensions().get::<RateLimited>().is_some()
    }
}

/// Any other protocol: nothing is known of a request or a response.
#[derive(Clone, Copy, Debug)]
pub struct Opaque;

impl<Req, Res> Protocol<Req, Res> for Opaque {}
