//! The response future: one request from the decision to its response.

use std::{
    fmt,
    future::Future,
    hash::Hash,
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::pending::{BoxedFuture, Outcome, POLLED_AFTER_READY, PendingRequest, WaitsFor};
use super::reservation::Reservation;
use crate::backend::Backend;
use crate::decision::{CompactDecision, Decision};
use crate::key::KeyExtractor;
use crate::respond::{ResponseHooks, Settle};

pin_project! {
    /// The response of a [`RateLimit`](super::RateLimit) service.
    ///
    /// # Cancel safety
    /// Dropping it while the request is queued refunds the cost, and all requests behind it move up.
    /// The cost of a request that was admitted, at once or later, stays taken: otherwise requests
    /// that are begun and dropped would be free.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, K, L, R, Req>
    where
        S: Service<Req>,
        K: KeyExtractor<Req>,
        L: Backend<K::Key>,
    {
        #[pin]
        step: StepOf<S, K::Key, L, R, Req>,
    }
}

type StepOf<S, K, L, R, Req> = Step<
    S,
    K,
    L,
    <L as Backend<K>>::Future,
    R,
    Req,
    <S as Service<Req>>::Future,
    <S as Service<Req>>::Response,
    <S as Service<Req>>::Error,
>;

pin_project! {
    #[project = StepProjection]
    enum Step<S, K, L, D, R, Req, F, Res, Err>
    where
        L: Backend<K>,
    {
        /// The inner service has the request.
        Inner {
            #[pin]
            future: F,
            context: Option<ResponseContext<K, L, R>>,
        },
        /// All other steps. They are one variant, so that a single test finds the common one.
        Cold {
            step: ColdStep<S, K, L, D, R, Req, Res, Err>,
        },
    }
}

enum ColdStep<S, K, L, D, R, Req, Res, Err>
where
    L: Backend<K>,
{
    /// The request waits.
    Pending(PendingRequest<S, K, L, D, R, Req>),
    /// The response is ready, and the backend is settling the cost.
    Settling {
        future: BoxedFuture<D>,
        result: Option<Result<Res, Err>>,
    },
    /// The result is known.
    Done { result: Option<Result<Res, Err>> },
}

/// What is needed once there is a response.
pub(super) struct ResponseContext<K, L: Backend<K>, R> {
    pub(super) reservation: Reservation<K, L>,
    pub(super) respond: R,
    /// If headers are written about it.
    pub(super) decision: Option<CompactDecision>,
}

impl<S, K, L, R, Req> ResponseFuture<S, K, L, R, Req>
where
    S: Service<Req>,
    K: KeyExtractor<Req>,
    L: Backend<K::Key>,
{
    #[inline]
    pub(super) const fn inner(
        future: S::Future,
        context: Option<ResponseContext<K::Key, L, R>>,
    ) -> Self {
        Self {
            step: Step::Inner { future, context },
        }
    }

    pub(super) const fn done(result: Result<S::Response, S::Error>) -> Self {
        Self {
            step: Step::Cold {
                step: ColdStep::Done {
                    result: Some(result),
                },
            },
        }
    }

    /// A request whose decision is pending.
    pub(super) fn deciding(
        mut pending: PendingRequest<S, K::Key, L, L::Future, R, Req>,
        decision: L::Future,
    ) -> Self {
        pending.waits_for = WaitsFor::Decision(Box::new(decision));
        Self::pending(pending)
    }

    /// A request that waits in line, or the refusal if it cannot.
    pub(super) fn queued(
        mut pending: PendingRequest<S, K::Key, L, L::Future, R, Req>,
        wait: Duration,
        decision: Decision,
    ) -> Self
    where
        R: ResponseHooks<Req, K::Key, S::Response, S::Error>,
    {
        match pending.enqueue(wait, decision) {
            Ok(()) => Self::pending(pending),
            Err(denied) => Self::done(pending.refuse(denied)),
        }
    }

    const fn pending(pending: PendingRequest<S, K::Key, L, L::Future, R, Req>) -> Self {
        Self {
            step: Step::Cold {
                step: ColdStep::Pending(pending),
            },
        }
    }
}

impl<S, K, L, R, Req> Future for ResponseFuture<S, K, L, R, Req>
where
    S: Service<Req>,
    K: KeyExtractor<Req>,
    L: Backend<K::Key>,
    R: ResponseHooks<Req, K::Key, S::Response, S::Error>,
{
    type Output = Result<S::Response, S::Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Without a context the result need not be moved again.
        if let StepProjection::Inner {
            future,
            context: None,
        } = self.as_mut().project().step.project()
        {
            return future.poll(cx);
        }
        self.poll_steps(cx)
    }
}

impl<S, K, L, R, Req> ResponseFuture<S, K, L, R, Req>
where
    S: Service<Req>,
    K: KeyExtractor<Req>,
    L: Backend<K::Key>,
    R: ResponseHooks<Req, K::Key, S::Response, S::Error>,
{
    /// Polls step after step until one is pending.
    #[inline(never)]
    fn poll_steps(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<S::Response, S::Error>> {
        let mut step = self.project().step;
        loop {
            match step.as_mut().project() {
                StepProjection::Inner { future, context } => {
                    let mut result = ready!(future.poll(cx));
                    let Some(mut settling) = context
                        .take()
                        .filter(|_| R::NEEDS_RESPONSE)
                        .and_then(|context| context.finish::<Req, _, _>(&mut result))
                    else {
                        return Poll::Ready(result);
                    };
                    // If settling fails, the cost stays as it was taken.
                    if Pin::new(&mut settling).poll(cx).is_ready() {
                        return Poll::Ready(result);
                    }
                    step.set(Step::Cold {
                        step: ColdStep::Settling {
                            future: Box::new(settling),
                            result: Some(result),
                        },
                    });
                    return Poll::Pending;
                }
                StepProjection::Cold { step: cold } => match cold {
                    ColdStep::Pending(pending) => match ready!(pending.poll(cx)) {
                        Outcome::Done(result) => {
                            *cold = ColdStep::Done { result: None };
                            return Poll::Ready(result);
                        }
                        Outcome::Called(future, decision) => {
                            let context = if R::NEEDS_RESPONSE {
                                let done = ColdStep::Done { result: None };
                                mem::replace(cold, done).into_context(decision, R::WRITES_HEADERS)
                            } else {
                                None
                            };
                            step.set(Step::Inner { future, context });
                        }
                    },
                    ColdStep::Settling { future, result } => {
                        if R::NEEDS_RESPONSE && !L::IS_IMMEDIATE {
                            let _ = ready!(Pin::new(future).poll(cx));
                        }
                        return Poll::Ready(result.take().expect(POLLED_AFTER_READY));
                    }
                    ColdStep::Done { result } => {
                        return Poll::Ready(result.take().expect(POLLED_AFTER_READY));
                    }
                },
            }
        }
    }
}

impl<S, K, L: Backend<K>, D, R, Req, Res, Err> ColdStep<S, K, L, D, R, Req, Res, Err> {
    /// The context of a pending request that the inner service has now. Without a decision there is
    /// nothing to do when the response is there.
    fn into_context(
        self,
        decision: Option<CompactDecision>,
        writes_headers: bool,
    ) -> Option<ResponseContext<K, L, R>> {
        match (self, decision) {
            (Self::Pending(pending), Some(decision)) => Some(ResponseContext {
                reservation: pending.reservation,
                respond: pending.respond,
                decision: (writes_headers && !pending.options.silent).then_some(decision),
            }),
            _ => None,
        }
    }
}

impl<K: Hash, L: Backend<K>, R> ResponseContext<K, L, R> {
    /// Writes the headers about the limit and settles the cost. The future, if any, completes when
    /// the backend has settled it.
    fn finish<Req, Res, Err>(&self, result: &mut Result<Res, Err>) -> Option<L::Future>
    where
        R: ResponseHooks<Req, K, Res, Err>,
    {
        if let (Some(decision), Ok(response)) = (&self.decision, &mut *result) {
            let (state, decision) = (self.reservation.state(), decision.get());
            let policies = state.policies();
            self.respond.tell(response, &policies, &decision);
        }
        match self
            .respond
            .settle(self.reservation.key_and_cost().0, result)
        {
            Settle::Keep => None,
            settle => self.reservation.settle(settle),
        }
    }
}

/// Manual impl: requests, keys and closures are not shown.
impl<S, K, L, R, Req> fmt::Debug for ResponseFuture<S, K, L, R, Req>
where
    S: Service<Req>,
    K: KeyExtractor<Req>,
    L: Backend<K::Key>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match &self.step {
            Step::Inner { .. } => "in the service",
            Step::Cold { step } => match step {
                ColdStep::Pending(pending) => match pending.waits_for {
                    WaitsFor::Decision(_) => "deciding",
                    WaitsFor::Turn(_) => "waiting",
                    WaitsFor::Service(_) => "waiting for the service",
                },
                ColdStep::Settling { .. } => "settling",
                ColdStep::Done { .. } => "done",
            },
        };
        f.debug_struct("ResponseFuture")
            .field("step", &step)
            .finish_non_exhaustive()
    }
}
