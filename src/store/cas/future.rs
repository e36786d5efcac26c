//! The future of a decision.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use super::{CasStore, inner::Inner};
use crate::algorithm::Algorithm;
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::StoreError;
use crate::store::remote::{CacheSlot, PendingCall};

type DecisionResult = Result<Decision, StoreError>;

/// The decision of a [`Cas`](super::Cas) limiter, in flight.
///
/// It ends by the deadline wherever it is polled.
///
/// # Cancel safety
/// The call is queued when the future is made. If it is dropped before the call was decided, the call is not
/// counted, unless a swap with it has failed and calls in the same swap still wait. If it is dropped later,
/// it is counted.
#[must_use = "futures do nothing unless polled"]
pub struct CasFuture<S: CasStore, A: Algorithm>(State<S, A>);

enum State<S: CasStore, A: Algorithm> {
    Pending {
        decision: PendingCall<Inner<S, A>>,
        /// Where a denial is cached, and its cost.
        denial: Option<(CacheSlot, u64)>,
        /// Of a request: what decides it, and when it was made.
        request: Option<(Arc<Inner<S, A>>, Tick)>,
    },
    /// A result that was known at once; `None` after it was returned.
    Ready(Option<DecisionResult>),
}

impl<S: CasStore, A: Algorithm> CasFuture<S, A> {
    pub(super) const fn new(
        decision: PendingCall<Inner<S, A>>,
        denial: Option<(CacheSlot, u64)>,
        request: Option<(Arc<Inner<S, A>>, Tick)>,
    ) -> Self {
        Self(State::Pending {
            decision,
            denial,
            request,
        })
    }

    /// A result that needs no call.
    pub(super) const fn ready(result: DecisionResult) -> Self {
        Self(State::Ready(Some(result)))
    }
}

impl<S: CasStore, A: Algorithm> Future for CasFuture<S, A> {
    type Output = DecisionResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<DecisionResult> {
        let (decision, denial, request) = match &mut self.0 {
            State::Ready(result) => return result.take().map_or(Poll::Pending, Poll::Ready),
            State::Pending {
                decision,
                denial,
                request,
            } => (decision, denial, request),
        };
        let Poll::Ready(mut result) = decision.poll(cx) else {
            return Poll::Pending;
        };
        match (&result, denial.take(), request.take()) {
            (Ok(decision), Some((slot, cost)), _) if decision.is_denied() => {
                slot.insert(cost, *decision);
            }
            (Err(error), _, Some((inner, called_at))) => {
                if let Some(denial) = inner.denial_instead(error, called_at) {
                    result = Ok(denial);
                }
            }
            _ => {}
        }
        self.0 = State::Ready(None);
        Poll::Ready(result)
    }
}

/// Manual impl: the key is not logged.
impl<S: CasStore, A: Algorithm> fmt::Debug for CasFuture<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CasFuture").finish_non_exhaustive()
    }
}
