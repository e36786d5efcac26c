//! A response body that holds something until it ends.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// A response body that holds `T`, a permit or a cost to settle, until its last frame is taken, or
    /// it has failed or is dropped.
    pub struct HeldBody<B, T> {
        // Dropped before what is held.
        #[pin]
        body: B,
        held: Option<T>,
    }
}

impl<B, T> HeldBody<B, T> {
    pub(crate) const fn new(body: B, held: Option<T>) -> Self {
        Self { body, held }
    }
}

impl<B: Body, T> Body for HeldBody<B, T> {
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
impl<B: Default, T> Default for HeldBody<B, T> {
    fn default() -> Self {
        Self::new(B::default(), None)
    }
}

/// A body that holds nothing, for responses that a layer further out makes.
impl<B: From<String>, T> From<String> for HeldBody<B, T> {
    fn from(text: String) -> Self {
        Self::new(text.into(), None)
    }
}

/// Manual impl: derive would require `T: Debug`.
impl<B: fmt::Debug, T> fmt::Debug for HeldBody<B, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldBody")
            .field("body", &self.body)
            .field("held", &self.held.is_some())
            .finish()
    }
}
