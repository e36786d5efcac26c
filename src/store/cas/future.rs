//! The future of a decision.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{runtime::Handle, sync::oneshot};

use super::{CasStore, decider::Told, error::Failure, inner::Inner};
use crate::algorithm::Algorithm;
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::StoreError;
use crate::store::{
    deadline::Deadline,
    events::RemoteMetrics,
    remote::{CacheSlot, DenyCache},
};

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
    pub(super) caching: Caching,
    /// Whether it is a request, which a lockout may deny if it cannot be decided.
    pub(super) is_request: bool,
}

/// A call, and who serves it.
pub(super) enum Sent {
    /// A task.
    Queued(Deadline, oneshot::Receiver<Result<Told, StoreError>>),
    /// This future, in the runtime in which it was made. A task would cost two changes between tasks. Boxed, because it
    /// is that of the store.
    Alone(
        Handle,
        Pin<Box<dyn Future<Output = Result<Told, StoreError>> + Send>>,
        Deadline,
    ),
}

/// What the reply does to the cache of denials.
#[derive(Debug)]
pub(super) enum Caching {
    Nothing,
    /// That of a request of this cost is cached.
    Denial(CacheSlot, u64),
    /// That of the key is forgotten: a call that was made later may have been executed earlier.
    Forgets(Arc<DenyCache>, String),
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
                Poll::Ready(Ok(told)) => Poll::Ready(told),
                // The task records the failure, if the call was sent at all.
                Poll::Pending => deadline
                    .poll(cx)
                    .map(|()| Err(self.inner.shared.deadline_exceeded())),
            },
        };
        let Poll::Ready(told) = polled else {
            return Poll::Pending;
        };
        RemoteMetrics(S::NAME).call_ended(
            self.called_at,
            self.inner.shared.deadline,
            told.as_ref().err(),
        );
        match (
            &told,
            std::mem::replace(&mut self.caching, Caching::Nothing),
        ) {
            (_, Caching::Forgets(cache, key)) => cache.invalidate(&key),
            (Ok(told), Caching::Denial(slot, cost)) => {
                if let Some(denial) = told.denial {
                    slot.insert(cost, denial);
                }
            }
            _ => {}
        }
        Poll::Ready(match told {
            Ok(told) => Ok(told.decision),
            Err(error) => {
                let denial = self.inner.denial_instead(&error, self.called_at);
                denial.filter(|_| self.is_request).ok_or(error)
            }
        })
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
