//! The future of a decision.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    runtime::Handle,
    sync::oneshot::{self, error::TryRecvError},
};

use super::{
    CasStore, decider::Call, driver::Driver, error::Failure, inner::Inner, lines::QueuedCall,
};
use crate::algorithm::Portable;
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::decision::Decision;
use crate::error::StoreError;
use crate::store::{
    events::RemoteMetrics,
    remote::{CacheSlot, CacheVersion, Deadline},
};

type DecisionResult = Result<Decision, StoreError>;

/// The decision of a [`Cas`](super::Cas) limiter, in flight.
///
/// It ends by the deadline wherever it is polled. The first call for a key that is polled decides
/// also for those that come while it is in flight, until it has its own decision; a task goes on
/// then. So a future that has been polled holds up the others of its key, for one deadline at most,
/// if it is neither polled on nor dropped.
///
/// # Cancel safety
/// The call is queued when the future is first polled. If it is dropped before the call was decided,
/// the call is not counted, unless a swap with it has failed and calls in the same swap still wait. If
/// it is dropped later, it is counted.
#[must_use = "futures do nothing unless polled"]
pub struct CasFuture<S: CasStore, A: Portable>(State<S, A>);

enum State<S: CasStore, A: Portable> {
    Pending(PendingDecision<S, A>),
    /// A result that was known at once; `None` after it was returned.
    Ready(Option<DecisionResult>),
}

struct PendingDecision<S: CasStore, A: Portable> {
    inner: Arc<Inner<S, A>>,
    runtime: Handle,
    key: Arc<str>,
    call: Call,
    /// `None` until the first poll.
    decision_rx: Option<oneshot::Receiver<DecisionResult>>,
    called_at: Tick,
    ends_at: Tick,
    deadline: Deadline,
    /// What decides the calls for the key, if that is done by this future.
    driver: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// The state of the cache of denials at the call and its cost, if a denial is to be cached.
    caches_denial: Option<(CacheVersion, u64)>,
}

impl<S: CasStore, A: Portable> CasFuture<S, A> {
    pub(super) fn new(
        inner: Arc<Inner<S, A>>,
        runtime: Handle,
        (key, call): (Arc<str>, Call),
        called_at: Tick,
        caches_denial: Option<(CacheVersion, u64)>,
    ) -> Self {
        let ends_at = called_at.plus(inner.shared.deadline);
        Self(State::Pending(PendingDecision {
            inner,
            runtime,
            key,
            call,
            decision_rx: None,
            called_at,
            ends_at,
            deadline: Deadline::new(ends_at),
            driver: None,
            caches_denial,
        }))
    }

    /// A result that needs no call.
    pub(super) const fn ready(result: DecisionResult) -> Self {
        Self(State::Ready(Some(result)))
    }
}

impl<S: CasStore, A: Portable> PendingDecision<S, A> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<DecisionResult> {
        if self.decision_rx.is_none() {
            self.start();
        }
        if let Some(driver) = &mut self.driver {
            // The caller may poll it on another runtime, or on none.
            let entered = self.runtime.enter();
            let is_done = driver.as_mut().poll(cx).is_ready();
            drop(entered);
            if is_done {
                self.driver = None;
            }
        }
        let Some(decision_rx) = &mut self.decision_rx else {
            return Poll::Pending;
        };
        let received = if self.driver.is_some() {
            // What is decided below wakes this task for its reply. A decision that woke it as well
            // would let another thread poll it once more.
            match decision_rx.try_recv() {
                Ok(result) => Poll::Ready(Some(result)),
                Err(TryRecvError::Empty) => Poll::Pending,
                Err(TryRecvError::Closed) => Poll::Ready(None),
            }
        } else {
            Pin::new(decision_rx).poll(cx).map(Result::ok)
        };
        let Poll::Ready(received) = received else {
            let expired = self.deadline.poll(cx);
            let time_limit = self.inner.shared.deadline;
            return expired.map(|()| Err(Failure::Deadline(time_limit).in_store(S::NAME)));
        };
        let result = received.unwrap_or_else(|| Err(Failure::RuntimeShutDown.in_store(S::NAME)));
        if let Some(cache) = &self.inner.deny_cache {
            match (&result, self.caches_denial) {
                (Ok(denial), Some((version, cost))) if denial.is_denied() => {
                    CacheSlot::new(cache, self.key.to_string(), version).insert(cost, *denial);
                }
                // A denial that was decided before it may have been cached meanwhile.
                _ if self.call.is_update() => cache.invalidate(&self.key),
                _ => {}
            }
        }
        Poll::Ready(result)
    }

    /// Queues the call, and decides the calls for the key if nothing else does.
    fn start(&mut self) {
        let inner = &self.inner;
        let (decision_tx, decision_rx) = oneshot::channel();
        self.decision_rx = Some(decision_rx);
        let queued = QueuedCall {
            call: self.call,
            deadline: self.ends_at,
            decision_tx,
        };
        let now = MonotonicClock.now();
        RemoteMetrics(S::NAME).call_queued();
        if let Some(id) = inner.lines.push(&self.key, queued, now, inner.ends_by(now)) {
            let driver = Driver::new(Arc::clone(inner), Arc::clone(&self.key), id);
            self.driver = Some(Box::pin(driver.run()));
        }
    }
}

/// Lets a task decide the calls that are left.
impl<S: CasStore, A: Portable> Drop for PendingDecision<S, A> {
    fn drop(&mut self) {
        if let Some(driver) = self.driver.take() {
            // The own call, if it is not decided yet, is not wanted any more.
            self.decision_rx = None;
            self.runtime.spawn(driver);
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
        let poll = pending.poll(cx);
        if let Poll::Ready(result) = &poll {
            let deadline = pending.inner.shared.deadline;
            let error = result.as_ref().err();
            RemoteMetrics(S::NAME).call_ended(pending.called_at, deadline, error);
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
