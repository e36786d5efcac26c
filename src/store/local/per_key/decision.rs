//! The decision of a limit with a plan per key.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use crate::decision::Decision;
use crate::error::StoreError;

/// The decision of a [`PerKey`](super::PerKey): ready at once, unless the plan has to be looked up.
#[must_use = "futures do nothing unless polled"]
pub struct PerKeyDecision(Progress);

enum Progress {
    /// `None` after it was returned.
    Ready(Option<Decision>),
    Pending(Pin<Box<dyn Future<Output = Decision> + Send>>),
}

impl PerKeyDecision {
    pub(super) const fn ready(decision: Decision) -> Self {
        Self(Progress::Ready(Some(decision)))
    }

    pub(super) fn pending(deciding: impl Future<Output = Decision> + Send + 'static) -> Self {
        Self(Progress::Pending(Box::pin(deciding)))
    }

    pub(super) const fn is_pending(&self) -> bool {
        matches!(self.0, Progress::Pending(_))
    }
}

impl Future for PerKeyDecision {
    type Output = Result<Decision, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Progress::Ready(decision) => Poll::Ready(Ok(decision
                .take()
                .expect("a future is not polled after it is ready"))),
            Progress::Pending(deciding) => deciding.as_mut().poll(cx).map(Ok),
        }
    }
}

/// Manual impl: boxed futures are not `Debug`.
impl fmt::Debug for PerKeyDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerKeyDecision")
            .field("is_pending", &self.is_pending())
            .finish_non_exhaustive()
    }
}
