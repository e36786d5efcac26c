//! When the permit of a request is released: with the body of its response, or before.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{Extensions, HeaderMap, HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::adaptive::Outcome;
use super::permit::Permit;
use crate::error::RateLimited;

/// When a permit is released. Sealed: [`UntilBodyEnds`], [`UntilHead`] and [`UntilResponse`] are all
/// there are.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot hold a permit in a `{Res}`",
    label = "the response is not an `http::Response` with a body",
    note = "for a service that is not HTTP add `.release_at_response()`"
)]
pub trait Hold<Res>: sealed::Sealed {
    /// The response as the layer returns it.
    type Response;

    /// Moves the permit into the response, or releases it.
    #[doc(hidden)]
    fn hold(response: Res, permit: Held) -> Self::Response;

    /// What an [adaptive](super::ConcurrencyLimitLayer::adaptive) limit learns from the response.
    #[doc(hidden)]
    fn outcome(response: &Res) -> Outcome;
}

/// The permit is released when the response body has ended, failed or was dropped.
///
/// So a request counts until the server has taken the last frame of the body. A body in one piece is
/// taken at once, however slowly the client reads. An empty body releases the permit at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct UntilBodyEnds;

/// The permit is released when the head of an HTTP response, or the error is there.
#[derive(Clone, Copy, Debug, Default)]
pub struct UntilHead;

/// The permit is released when the response, of any kind, or the error is there.
#[derive(Clone, Copy, Debug, Default)]
pub struct UntilResponse;

/// The permit of a request, if it has one.
#[doc(hidden)]
#[derive(Debug)]
#[expect(unnameable_types, reason = "only the layer uses it")]
pub struct Held(pub(super) Option<Permit>);

impl<B: Body> Hold<Response<B>> for UntilBodyEnds {
    type Response = Response<PermitBody<B>>;

    #[inline]
    fn hold(response: Response<B>, Held(permit): Held) -> Self::Response {
        response.map(|body| {
            let permit = permit.filter(|_| !body.is_end_stream());
            PermitBody { body, permit }
        })
    }

    fn outcome(response: &Response<B>) -> Outcome {
        http_outcome(response.extensions(), response.status(), response.headers())
    }
}

impl<B> Hold<Response<B>> for UntilHead {
    type Response = Response<B>;

    #[inline]
    fn hold(response: Response<B>, permit: Held) -> Response<B> {
        drop(permit);
        response
    }

    fn outcome(response: &Response<B>) -> Outcome {
        http_outcome(response.extensions(), response.status(), response.headers())
    }
}

impl<Res> Hold<Res> for UntilResponse {
    type Response = Res;

    #[inline]
    fn hold(response: Res, permit: Held) -> Res {
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

mod sealed {
    #[expect(unnameable_types, reason = "a seal must not be nameable")]
    pub trait Sealed {}

    impl Sealed for super::UntilBodyEnds {}
    impl Sealed for super::UntilHead {}
    impl Sealed for super::UntilResponse {}
}

pin_project! {
    /// A response body that holds the permit of its request until its last frame is taken, or it has
    /// failed or is dropped.
    pub struct PermitBody<B> {
        // Dropped before the permit.
        #[pin]
        body: B,
        permit: Option<Permit>,
    }
}

impl<B> PermitBody<B> {
    /// The body of the service.
    pub const fn get_ref(&self) -> &B {
        &self.body
    }
}

impl<B: Body> Body for PermitBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    #[inline]
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(cx));
        // Servers need not poll a body again that says it has ended.
        if !matches!(frame, Some(Ok(_))) || this.body.is_end_stream() {
            *this.permit = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A body without a permit, for responses that a layer further out makes.
impl<B: Default> Default for PermitBody<B> {
    fn default() -> Self {
        Self::from_body(B::default())
    }
}

/// A body without a permit, for responses that a layer further out makes.
impl<B: From<String>> From<String> for PermitBody<B> {
    fn from(text: String) -> Self {
        Self::from_body(text.into())
    }
}

impl<B> PermitBody<B> {
    const fn from_body(body: B) -> Self {
        Self { body, permit: None }
    }
}

impl<B: fmt::Debug> fmt::Debug for PermitBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermitBody")
            .field("body", &self.body)
            .field("holds_permit", &self.permit.is_some())
            .finish()
    }
}
