//! A change to the state of one key.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};

use crate::clock::spawn;
use crate::decision::Decision;
use crate::error::StoreError;

/// A change to the state of one key, made by a [`Handle`](super::Handle).
///
/// It starts at once. With limits in this process it is done when the call returns, and there is
/// nothing to await. With limits on a server, await it to learn whether it succeeded.
///
/// # Cancel safety
/// A change that is dropped before it is done goes on in a task of the tokio runtime in which it is
/// dropped. Without a runtime (or without the feature `tokio`) it may be lost.
///
/// ```
/// use tower_throttle::{FixedWindow, Global, Quota, RateLimitLayer};
///
/// # async fn example() -> Result<(), tower_throttle::StoreError> {
/// let layer = RateLimitLayer::new(Global, FixedWindow::new(Quota::per_day(100)));
/// layer.handle().charge(&(), 10); // in this process: done
/// layer.handle().charge(&(), 10).await?; // on a server: done, or failed
/// # Ok(())
/// # }
/// ```
pub struct KeyUpdate<F: Future<Output = Result<Decision, StoreError>> + Send + Unpin + 'static> {
    /// `None` once it is done.
    running: Option<F>,
    /// `None` once it has been returned.
    result: Option<Result<(), StoreError>>,
}

impl<F> KeyUpdate<F>
where
    F: Future<Output = Result<Decision, StoreError>> + Send + Unpin + 'static,
{
    pub(super) fn start(future: F) -> Self {
        let mut update = Self {
            running: Some(future),
            result: None,
        };
        let _ = update.advance(&mut Context::from_waker(Waker::noop()));
        update
    }

    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(future) = &mut self.running {
            self.result = Some(ready!(Pin::new(future).poll(cx)).map(drop));
            self.running = None;
        }
        Poll::Ready(())
    }
}

impl<F> Future for KeyUpdate<F>
where
    F: Future<Output = Result<Decision, StoreError>> + Send + Unpin + 'static,
{
    type Output = Result<(), StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        ready!(self.advance(cx));
        let result = self.result.take();
        Poll::Ready(result.expect("a future is not polled after it is ready"))
    }
}

impl<F> Drop for KeyUpdate<F>
where
    F: Future<Output = Result<Decision, StoreError>> + Send + Unpin + 'static,
{
    fn drop(&mut self) {
        if let Some(future) = self.running.take() {
            spawn(future);
        }
    }
}

/// Manual impl: derive would require `F: Debug`.
impl<F> fmt::Debug for KeyUpdate<F>
where
    F: Future<Output = Result<Decision, StoreError>> + Send + Unpin + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_done = self.running.is_none();
        f.debug_struct("KeyUpdate")
            .field("is_done", &is_done)
            .finish_non_exhaustive()
    }
}
