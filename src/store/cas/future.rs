//! The future of a decision.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{runtime::Handle, sync::oneshot};

use super::{CasStore, error::Failure, inner::Inner};
use crate::algorithm::Algorithm;
use crate::backend::Op;
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::StoreError;
use crate::store::{deadline::Deadline, events::RemoteMetrics};

type DecisionResult = Result<Decision, StoreError>;

/// The decision of a [`Cas`](super::Cas) limiter, in flight.
///
/// It ends by the deadline wherever it is polled.
///
/// # Cancel safety
/// The call is sent when the future is first polled, or before. If it is dropped before the call was sent or decided,
/// the call is not counted, unless a swap with it has failed and calls in the same swap still wait. If it is dropped
/// later, it is counted.
#[must_use = "futures do nothing unless polled"]
pub struct CasFuture<S: CasStore, A: Algorithm>(State<S, A>);

enum State<S: CasStore, A: Algorithm> {
    Pending(Pending<S, A>),
    /// A result that was known at once; `None` after it was returned.
    Ready(Option<DecisionResult>),
}

pub(super) struct Pending<S: CasStore, A: Algorithm> {
    pub(super) inner: Arc<Inner<S, A>>,
    pub(super) called_at: Tick,
    pub(super) sent: Sent,
    pub(super) op: Op,
}

/// A call, and who serves it.
pub(super) enum Sent {
    /// A task.
    Queued(Deadline, oneshot::Receiver<DecisionResult>),
    /// This future, in the runtime in which it was made. A task would cost two changes between tasks. Boxed, because it
    /// is that of the store.
    Alone(
        Handle,
        Pin<Box<dyn Future<Output = DecisionResult> + Send>>,
        Deadline,
    ),
}

impl<S: CasStore, A: Algorithm> CasFuture<S, A> {
    pub(super) const fn pending(pending: Pending<S, A>) -> Self {
        Self(State::Pending(pending))
    }

    /// A result that needs no call.
    pub(super) const fn ready(result: DecisionResult) -> Self {
        Self(State::Ready(Some(result)))
    }
}

impl<S: CasStore, A: Algorithm> Pending<S, A> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<DecisionResult> {
        let polled = match &mut self.sent {
            Sent::Alone(_, sending, _) if Handle::try_current().is_ok() => {
                sending.as_mut().poll(cx)
            }
            Sent::Alone(runtime, sending, deadline) => {
                let entered = runtime.enter();
                let sent = sending.as_mut().poll(cx);
                drop(entered);
                match sent {
                    // The timers of that runtime may not run.
                    Poll::Pending => deadline
                        .poll(cx)
                        .map(|()| Err(self.inner.shared.deadline_exceeded())),
                    sent @ Poll::Ready(_) => sent,
                }
            }
            Sent::Queued(deadline, reply) => match Pin::new(reply).poll(cx) {
                Poll::Ready(Err(_)) => Poll::Ready(Err(Failure::RuntimeShutDown.in_store(S::NAME))),
                Poll::Ready(Ok(result)) => Poll::Ready(result),
                // The task records the failure, if the call was sent at all.
                Poll::Pending => deadline
                    .poll(cx)
                    .map(|()| Err(self.inner.shared.deadline_exceeded())),
            },
        };
        let Poll::Ready(result) = polled else {
            return Poll::Pending;
        };
        RemoteMetrics(S::NAME).call_ended(
            self.called_at,
            self.inner.shared.deadline,
            result.as_ref().err(),
        );
        Poll::Ready(result.or_else(|error| {
            let denial = self.inner.denial_instead(self.op, &error, self.called_at);
            denial.ok_or(error)
        }))
    }
}

impl<S: CasStore, A: Algorithm> Future for CasFuture<S, A> {
    type Output = DecisionResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<DecisionResult> {
        let result = match &mut self.0 {
            State::Ready(result) => return result.take().map_or(Poll::Pending, Poll::Ready),
            State::Pending(pending) => pending.poll(cx),
        };
        if result.is_ready() {
            self.0 = State::Ready(None);
        }
        result
    }
}

/// Manual impl: the key is not logged.
impl<S: CasStore, A: Algorithm> fmt::Debug for CasFuture<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CasFuture").finish_non_exhaustive()
    }
}
