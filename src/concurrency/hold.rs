//! When the permit of a request is released: with the body of its response, or before.

use http::{Extensions, HeaderMap, HeaderValue, Response, StatusCode};
use http_body::Body;

use super::adaptive::Outcome;
use super::keep::{HeldPermits, hand_over};
use crate::error::RateLimited;
use crate::layer::HeldBody;

/// When a permit is released: [`UntilBodyEnds`] and [`UntilResponse`] are all there are.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot hold a permit in a `{Res}`",
    label = "the response is not an `http::Response` with a body",
    note = "for a service that is not HTTP add `.release_at_response()`"
)]
pub trait Hold<Res> {
    /// The response as the layer returns it.
    type Response;

    /// Moves the permit into the response, or releases it.
    fn hold(response: Res, permit: HeldPermits) -> Self::Response;

    /// What an [adaptive](super::ConcurrencyLimitLayer::adaptive) limit learns from the response.
    fn outcome(response: &Res) -> Outcome;
}

/// The permit is released when the response body has ended, failed or was dropped.
///
/// So a request counts until the server has taken the last frame of the body. A body in one piece is
/// taken at once, however slowly the client reads. An empty body releases the permit at once. If the response
/// names a [`PermitHolder`](super::PermitHolder), that has the permit instead.
#[derive(Clone, Copy, Debug, Default)]
pub struct UntilBodyEnds;

/// The permit is released when the response, of any kind, or the error is there.
#[derive(Clone, Copy, Debug, Default)]
pub struct UntilResponse;

impl<B: Body> Hold<Response<B>> for UntilBodyEnds {
    type Response = Response<PermitBody<B>>;

    #[inline]
    fn hold(response: Response<B>, held: HeldPermits) -> Self::Response {
        let held = hand_over(response.extensions(), held);
        response.map(|body| {
            let held = held.filter(|_| !body.is_end_stream());
            HeldBody::new(body, held)
        })
    }

    fn outcome(response: &Response<B>) -> Outcome {
        http_outcome(response.extensions(), response.status(), response.headers())
    }
}

impl<Res> Hold<Res> for UntilResponse {
    type Response = Res;

    #[inline]
    fn hold(response: Res, permit: HeldPermits) -> Res {
        drop(permit);
        response
    }

    fn outcome(_: &Res) -> Outcome {
        Outcome::Success
    }
}

/// Only what the service did at its usual speed is a sample. An error may be quick because little was
/// done for it, and nothing was for what a limit further in has denied.
fn http_outcome(extensions: &Extensions, status: StatusCode, headers: &HeaderMap) -> Outcome {
    match status {
        _ if extensions.get::<RateLimited>().is_some() => Outcome::Ignored,
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => Outcome::Dropped,
        _ if status.is_client_error() || status.is_server_error() => Outcome::Ignored,
        _ => match headers.get("grpc-status").map(HeaderValue::as_bytes) {
            None | Some(b"0") => Outcome::Success,
            // Deadline exceeded, unavailable. Resource exhausted is about the client, as is 429.
            Some(b"4" | b"14") => Outcome::Dropped,
            Some(_) => Outcome::Ignored,
        },
    }
}

/// A response body that holds the permits of its request until its last frame is taken, or it has
/// failed or is dropped.
pub type PermitBody<B> = HeldBody<B, HeldPermits>;
