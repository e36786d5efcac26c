//! When the permit of a request is released: with the body of its response, or before.

use http::{HeaderValue, Response, StatusCode};
use http_body::Body;

use super::adaptive::RequestEnd;
use super::body::PermitBody;
use super::keep::{HeldPermits, hand_over};
use crate::error::RateLimited;

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

/// Moves the permits into the response.
#[inline]
pub(super) fn hold<B: Body>(response: Response<B>, held: HeldPermits) -> Response<PermitBody<B>> {
    let held = hand_over(response.extensions(), held);
    response.map(|body| {
        let held = held.filter(|_| !body.is_end_stream());
        PermitBody::new(body, held)
    })
}

/// What an adaptive limit learns from the response.
///
/// Only what the service did at its usual speed is a sample. An error may be quick because little was
/// done for it, and nothing was for what a limit further in has denied.
pub(super) fn outcome<B>(response: &Response<B>) -> RequestEnd {
    match response.status() {
        _ if response.extensions().get::<RateLimited>().is_some() => RequestEnd::Ignored,
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => RequestEnd::Dropped,
        status if status.is_client_error() || status.is_server_error() => RequestEnd::Ignored,
        _ => match response
            .headers()
            .get("grpc-status")
            .map(HeaderValue::as_bytes)
        {
            None | Some(b"0") => RequestEnd::Success,
            // Deadline exceeded, unavailable. Resource exhausted is about the client, as is 429.
            Some(b"4" | b"14") => RequestEnd::Dropped,
            Some(_) => RequestEnd::Ignored,
        },
    }
}
