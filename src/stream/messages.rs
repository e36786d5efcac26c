//! A stream whose items are limited one by one.

use std::task::{Context, Poll, ready};
use std::{fmt, future::poll_fn, pin::Pin};

use futures_core::Stream;
use pin_project_lite::pin_project;

use super::limit::{StreamLimit, StreamMeter};
use crate::error::RateLimited;

pin_project! {
    /// A stream whose items are limited one by one: the messages of a WebSocket or of a gRPC stream.
    ///
    /// An item that is over the limit waits, and the next one is not read meanwhile. If it would wait longer
    /// than [`max_wait`](StreamLimit::max_wait), an `Err` takes its place. The stream goes on after it; the
    /// caller may end it.
    ///
    /// An item is counted when it has arrived, once, however often the stream is polled. The end of the
    /// stream is not counted.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), tower_throttle::RateLimited> {
    /// use tokio::time::Instant;
    /// use tower_throttle::{Quota, TokenBucket, stream::{LimitedStream, StreamLimit}};
    /// # use std::{pin::Pin, task::{Context, Poll}};
    /// # use futures_core::Stream;
    /// # struct Numbers(std::ops::Range<u32>);
    /// # impl Stream for Numbers {
    /// #     type Item = u32;
    /// #     fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<u32>> {
    /// #         Poll::Ready(self.0.next())
    /// #     }
    /// # }
    ///
    /// let bucket = TokenBucket::new(Quota::per_second(10).burst(1));
    /// let mut messages = LimitedStream::new(Numbers(0..5), StreamLimit::new(bucket, ()));
    /// let start = Instant::now();
    /// while let Some(message) = messages.next().await {
    ///     println!("{}", message?);
    /// }
    /// # if cfg!(feature = "tokio") {
    /// assert_eq!(start.elapsed().as_millis(), 400);
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "a stream does nothing unless polled"]
    pub struct LimitedStream<S: Stream> {
        #[pin]
        stream: S,
        // Has arrived, and its cost is being taken.
        item: Option<S::Item>,
        cost: fn(&S::Item) -> u64,
        meter: StreamMeter,
    }
}

impl<S: Stream> LimitedStream<S> {
    /// Limits the items of `stream`, each at a cost of 1.
    pub fn new(stream: S, limit: StreamLimit) -> Self {
        Self {
            stream,
            item: None,
            cost: |_| 1,
            meter: StreamMeter::new(limit),
        }
    }

    /// The cost of each item, instead of 1: its length, or 0 for one that is not counted, such as a ping or
    /// an error.
    ///
    /// ```
    /// use futures_core::Stream;
    /// use tower_throttle::stream::{LimitedStream, StreamLimit};
    ///
    /// fn by_length(messages: impl Stream<Item = String>, limit: StreamLimit) {
    ///     let limited = LimitedStream::new(messages, limit).cost(|text| text.len() as u64);
    ///     # drop(limited);
    /// }
    /// ```
    pub fn cost(mut self, cost: fn(&S::Item) -> u64) -> Self {
        self.cost = cost;
        self
    }

    /// The stream within, to send by it. An item that is read from it is not limited.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// The next item. `None` if the stream has ended.
    ///
    /// # Errors
    /// If the item would have to wait for too long, or nothing could decide about it. It is lost; the next one
    /// can be read.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: the stream keeps the item, and its place in line.
    pub async fn next(&mut self) -> Option<Result<S::Item, RateLimited>>
    where
        S: Unpin,
    {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl<S: Stream> Stream for LimitedStream<S> {
    type Item = Result<S::Item, RateLimited>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.project();
        if this.item.is_none() {
            *this.item = ready!(this.stream.poll_next(cx));
        }
        let Some(item) = this.item.as_ref() else {
            return Poll::Ready(None);
        };
        let taken = ready!(this.meter.poll_take((this.cost)(item), false, cx));
        Poll::Ready(this.item.take().map(|item| taken.map(|_| item)))
    }
}

/// Manual impl: messages are not logged.
impl<S: Stream + fmt::Debug> fmt::Debug for LimitedStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitedStream")
            .field("stream", &self.stream)
            .field("meter", &self.meter)
            .finish_non_exhaustive()
    }
}
