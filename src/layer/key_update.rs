//! A change to the state of one key.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use super::keyed::poll_once;
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
pub struct KeyUpdate<F: Future<Output = Result<Decision, StoreError>> + Send + Unpin + 'static>(
    Progress<F>,
);

enum Progress<F> {
    Running(F),
    /// `None` once it has been returned.
    Finished(Option<Result<(), StoreError>>),
}

impl<F> KeyUpdate<F>
where
    F: Future<Output = Result<Decision, StoreError>> + Send + Unpin + 'static,
{
    pub(super) fn start(mut future: F) -> Self {
        Self(match poll_once(&mut future) {
            Poll::Ready(decided) => Progress::Finished(Some(decided.map(|_| ()))),
            Poll::Pending => Progress::Running(future),
        })
    }
}

impl<F> Future for KeyUpdate<F>
where
    F: Future<Output = Result<Decision, StoreError>> + Send + Unpin + 'static,
{
    type Output = Result<(), StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = match &mut self.0 {
            Progress::Running(future) => match Pin::new(future).poll(cx) {
                Poll::Ready(decided) => decided.map(|_| ()),
                Poll::Pending => return Poll::Pending,
            },
            Progress::Finished(result) => {
                return Poll::Ready(
                    result
                        .take()
                        .expect("a future is not polled after it is ready"),
                );
            }
        };
        self.0 = Progress::Finished(None);
        Poll::Ready(result)
    }
}

impl<F> Drop for KeyUpdate<F>
where
    F: Future<Output = Result<Decision, StoreError>> + Send + Unpin + 'static,
{
    fn drop(&mut self) {
        if let Progress::Running(future) = std::mem::replace(&mut self.0, Progress::Finished(None))
        {
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
        let is_done = matches!(self.0, Progress::Finished(_));
        f.debug_struct("KeyUpdate")
            .field("is_done", &is_done)
            .finish_non_exhaustive()
    }
}
