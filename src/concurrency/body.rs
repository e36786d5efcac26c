//! A response body that holds permits until it ends.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::keep::HeldPermits;

pin_project! {
    /// A response body that holds the permits of its request until its last frame is taken, or it has failed or is
    /// dropped.
    pub struct PermitBody<B> {
        // Dropped before what is held.
        #[pin]
        body: B,
        held: Option<HeldPermits>,
    }
}

impl<B> PermitBody<B> {
    pub(super) const fn new(body: B, held: Option<HeldPermits>) -> Self {
        Self { body, held }
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
            *this.held = None;
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

/// A body that holds nothing, for responses that a layer further out makes.
impl<B: Default> Default for PermitBody<B> {
    fn default() -> Self {
        Self::new(B::default(), None)
    }
}

/// A body that holds nothing, for responses that a layer further out makes.
impl<B: From<String>> From<String> for PermitBody<B> {
    fn from(text: String) -> Self {
        Self::new(text.into(), None)
    }
}

/// Manual impl: permits are not `Debug`.
impl<B: fmt::Debug> fmt::Debug for PermitBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermitBody")
            .field("body", &self.body)
            .field("held", &self.held.is_some())
            .finish()
    }
}
