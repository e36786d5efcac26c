//! A body that passes no faster than its limit allows.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::limit::StreamLimit;
use super::pace::{BoxError, Counting, Pace};

pin_project! {
    /// A body of a request or a response that passes no faster than its limit allows.
    ///
    /// Each piece is counted once, before it passes: [in bytes](Self::bytes), or [in gRPC
    /// messages](Self::grpc_messages). Nothing more is read meanwhile. Trailers, empty frames and errors of
    /// the body pass at once and are not counted. The length that a body states is passed on and counts for
    /// nothing.
    ///
    /// # Errors
    /// Those of the body, and [`RateLimited`](crate::RateLimited) if a piece would wait longer than the
    /// [`max_wait`](StreamLimit::max_wait) of the limit, or nothing could decide about it. Nothing of the piece
    /// is lost: polling again asks again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// use axum::body::{Body, to_bytes};
    /// use tokio::time::Instant;
    /// use tower_throttle::{Quota, TokenBucket, stream::{LimitedBody, StreamLimit}};
    ///
    /// // 10 kB per second, after a burst of 1 kB.
    /// let bucket = TokenBucket::new(Quota::per_second(10_000).burst(1_000));
    /// let limit = StreamLimit::new(bucket, ());
    /// let body = Body::new(LimitedBody::bytes(Body::from(vec![0; 6_000]), limit));
    /// let start = Instant::now();
    /// assert_eq!(to_bytes(body, usize::MAX).await.unwrap().len(), 6_000);
    /// # if cfg!(feature = "tokio") {
    /// assert_eq!(start.elapsed().as_millis(), 500);
    /// # }
    /// # }
    /// ```
    #[derive(Debug)]
    pub struct LimitedBody<B> {
        #[pin]
        body: B,
        // Data that has arrived and not passed. Never empty.
        rest: Option<Bytes>,
        // `None` if the body is not limited.
        pace: Option<Pace>,
    }
}

impl<B> LimitedBody<B> {
    /// Counts bytes. Frames of more than 64 KiB are cut. A limit that never admits as much at once is asked for
    /// half of what it does admit.
    pub fn bytes(body: B, limit: StreamLimit) -> Self {
        Self::paced(body, Some(Pace::new(limit, Counting::new(false))))
    }

    /// Counts gRPC messages, whatever their size and however they are spread over frames.
    ///
    /// ```
    /// use tower_throttle::{Quota, TokenBucket, stream::{LimitedBody, StreamLimit}};
    ///
    /// fn limited<B>(body: B) -> LimitedBody<B> {
    ///     let bucket = TokenBucket::new(Quota::per_second(100));
    ///     LimitedBody::grpc_messages(body, StreamLimit::new(bucket, ()))
    /// }
    /// # drop(limited(()));
    /// ```
    pub fn grpc_messages(body: B, limit: StreamLimit) -> Self {
        Self::paced(body, Some(Pace::new(limit, Counting::new(true))))
    }

    pub(super) const fn paced(body: B, pace: Option<Pace>) -> Self {
        let rest = None;
        Self { body, rest, pace }
    }
}

impl<B> Body for LimitedBody<B>
where
    B: Body<Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut this = self.project();
        loop {
            if let (Some(rest), Some(pace)) = (&mut *this.rest, &mut *this.pace) {
                let passed = ready!(pace.poll_pass(rest, cx));
                let piece = passed.map(|len| Frame::data(rest.split_to(len)));
                if rest.is_empty() {
                    *this.rest = None;
                }
                return Poll::Ready(Some(piece));
            }
            let frame = match ready!(this.body.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => frame.map_data(|mut data| data.copy_to_bytes(data.remaining())),
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                None => return Poll::Ready(None),
            };
            match frame.into_data() {
                Ok(data) if this.pace.is_some() && !data.is_empty() => *this.rest = Some(data),
                Ok(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.as_ref().map_or(0, |rest| rest.len() as u64);
        let mut hint = self.body.size_hint();
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(hint.lower().saturating_add(rest));
        hint
    }
}

/// A body without a limit, for responses that a layer further out makes.
impl<B: Default> Default for LimitedBody<B> {
    fn default() -> Self {
        Self::paced(B::default(), None)
    }
}

/// A body without a limit, for responses that a layer further out makes.
impl<B: From<String>> From<String> for LimitedBody<B> {
    fn from(text: String) -> Self {
        Self::paced(text.into(), None)
    }
}
