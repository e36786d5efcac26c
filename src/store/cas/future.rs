//! The future of a decision.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use super::{CasStore, decider::Call, inner::Inner};
use crate::algorithm::Portable;
use crate::decision::Decision;
use crate::error::StoreError;
use crate::store::remote::{CacheSlot, CacheVersion, PendingCall};

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
    Pending(PendingDecision<S, A>),
    /// A result that was known at once; `None` after it was returned.
    Ready(Option<DecisionResult>),
}

struct PendingDecision<S: CasStore, A: Portable> {
    inner: Arc<Inner<S, A>>,
    /// The name of its denials in the cache.
    key: Arc<str>,
    call: Call,
    decision: PendingCall<Inner<S, A>>,
    /// The state of the cache of denials at the call and its cost, if a denial is to be cached.
    caches_denial: Option<(CacheVersion, u64)>,
}

impl<S: CasStore, A: Portable> CasFuture<S, A> {
    pub(super) fn new(
        inner: Arc<Inner<S, A>>,
        (key, call): (Arc<str>, Call),
        decision: PendingCall<Inner<S, A>>,
        caches_denial: Option<(CacheVersion, u64)>,
    ) -> Self {
        Self(State::Pending(PendingDecision {
            inner,
            key,
            call,
            decision,
            caches_denial,
        }))
    }

    /// A result that needs no call.
    pub(super) const fn ready(result: DecisionResult) -> Self {
        Self(State::Ready(Some(result)))
    }
}

impl<S: CasStore, A: Portable> PendingDecision<S, A> {
    /// Caches a denial for the next request, or forgets one that may be over.
    fn note(&self, result: &DecisionResult) {
        let Some(cache) = &self.inner.deny_cache else {
            return;
        };
        match (result, self.caches_denial) {
            (Ok(denial), Some((version, cost))) if denial.is_denied() => {
                CacheSlot::new(cache, self.key.to_string(), version).insert(cost, *denial);
            }
            // A denial that was decided before it may have been cached meanwhile.
            _ if self.call.is_update() => cache.invalidate(&self.key),
            _ => {}
        }
    }
}

impl<S: CasStore, A: Portable> Future for CasFuture<S, A> {
    type Output = DecisionResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<DecisionResult> {
        let pending = match &mut self.0 {
            State::Ready(result) => return result.take().map_or(Poll::Pending, Poll::Ready),
            State::Pending(pending) => pending,
        };
        let poll = pending.decision.poll(cx);
        if let Poll::Ready(result) = &poll {
            pending.note(result);
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
