//! The future of a decision.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use super::{CasStore, inner::Inner};
use crate::algorithm::Portable;
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
pub struct CasFuture<S: CasStore, A: Portable>(State<S, A>);

enum State<S: CasStore, A: Portable> {
    Pending {
        decision: PendingCall<Inner<S, A>>,
        /// Where a denial is cached, and its cost.
        denial: Option<(CacheSlot, u64)>,
    },
    /// A result that was known at once; `None` after it was returned.
    Ready(Option<DecisionResult>),
}

impl<S: CasStore, A: Portable> CasFuture<S, A> {
    pub(super) const fn new(
        decision: PendingCall<Inner<S, A>>,
        denial: Option<(CacheSlot, u64)>,
    ) -> Self {
        Self(State::Pending { decision, denial })
    }

    /// A result that needs no call.
    pub(super) const fn ready(result: DecisionResult) -> Self {
        Self(State::Ready(Some(result)))
    }
}

impl<S: CasStore, A: Portable> Future for CasFuture<S, A> {
    type Output = DecisionResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<DecisionResult> {
        let (decision, denial) = match &mut self.0 {
            State::Ready(result) => return result.take().map_or(Poll::Pending, Poll::Ready),
            State::Pending { decision, denial } => (decision, denial),
        };
        let poll = decision.poll(cx);
        if let Poll::Ready(result) = &poll {
            match (result, denial.take()) {
                (Ok(decision), Some((slot, cost))) if decision.is_denied() => {
                    slot.insert(cost, *decision);
                }
                _ => {}
            }
            self.0 = State::Ready(None);
        }
        poll
    }
}

/// Manual impl: the key is not logged.
impl<S: CasStore, A: Portable> fmt::Debug for CasFuture<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CasFuture").finish_non_exhaustive()
    }
}
