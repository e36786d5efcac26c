//! The response of one limited request, step by step.

use std::{
    fmt,
    future::Future,
    hash::Hash,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::options::{Action, LayerOptions};
use super::reservation::{Reservation, WaitError};
use crate::backend::Backend;
use crate::decision::{CompactDecision, Decision, Verdict};
use crate::error::StoreError;
use crate::key::KeyExtractor;
use crate::queue::RequestSeat;
use crate::respond::{ResponseHooks, Settle};

pin_project! {
    /// The response of a [`RateLimit`](super::RateLimit) service.
    ///
    /// # Cancel safety
    /// If it is dropped while the request waits for its turn, the cost is given back and the waiters
    /// behind move up. After that, or if the request was admitted at once, the cost stays taken:
    /// otherwise requests that are begun and dropped would be free.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, K, L, R, Req>
    where
        S: Service<Req>,
        K: KeyExtractor<Req>,
        L: Backend<K::Key>,
    {
        #[pin]
        step: Step<S, K::Key, L, L::Future, R, Req, S::Future, S::Response, S::Error>,
    }
}

pin_project! {
    #[project = StepProjection]
    enum Step<S, K, L, D, R, Req, F, Res, Err>
    where
        L: Backend<K>,
    {
        /// The service has the request.
        Inner {
            #[pin]
            future: F,
            context: Option<ResponseContext<K, L, R>>,
        },
        /// All other steps in one variant, so that one comparison finds the step of nearly every
        /// request.
        Cold {
            step: ColdStep<S, K, L, D, R, Req, Res, Err>,
        },
    }
}

enum ColdStep<S, K, L, D, R, Req, Res, Err>
where
    L: Backend<K>,
{
    /// The backend has not decided yet.
    Deciding {
        future: BoxedFuture<D>,
        pending: Option<PendingRequest<S, K, L, R, Req>>,
    },
    /// The request is in line.
    Waiting {
        pending: Option<PendingRequest<S, K, L, R, Req>>,
        decision: CompactDecision,
    },
    /// The request goes on as soon as the service is ready.
    WaitingForService {
        pending: Option<PendingRequest<S, K, L, R, Req>>,
        decision: Option<CompactDecision>,
    },
    /// The response is there, and the cost is being settled.
    Settling {
        future: BoxedFuture<D>,
        result: Option<Result<Res, Err>>,
    },
    Done {
        result: Option<Result<Res, Err>>,
    },
}

/// The future of a backend that does I/O. Inline it would be most of the future of every request,
/// even if the backend is never pending; and a hundred thousand requests may wait.
type BoxedFuture<D> = Box<D>;

/// What is needed to go on later: the request, and a clone of the service for it.
pub(super) struct PendingRequest<S, K, L: Backend<K>, R, Req> {
    pub(super) service: S,
    pub(super) request: Req,
    pub(super) reservation: Reservation<K, L>,
    /// Released when the request goes on or is dropped.
    pub(super) seat: RequestSeat,
    pub(super) respond: R,
    pub(super) options: LayerOptions,
}

/// What is needed once the response is there.
pub(super) struct ResponseContext<K, L: Backend<K>, R> {
    pub(super) reservation: Reservation<K, L>,
    pub(super) respond: R,
    /// If the response states it.
    pub(super) decision: Option<CompactDecision>,
}

const POLLED_AFTER_READY: &str = "the future was polled again after it had been ready";

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
        let result = Some(result);
        let step = ColdStep::Done { result };
        Self {
            step: Step::Cold { step },
        }
    }

    pub(super) fn deciding(
        deciding: L::Future,
        pending: PendingRequest<S, K::Key, L, R, Req>,
    ) -> Self {
        let step = ColdStep::Deciding {
            future: Box::new(deciding),
            pending: Some(pending),
        };
        Self {
            step: Step::Cold { step },
        }
    }

    pub(super) fn waiting(
        pending: PendingRequest<S, K::Key, L, R, Req>,
        wait: Duration,
        decision: Decision,
    ) -> Self
    where
        R: ResponseHooks<Req, K::Key, S::Response, S::Error>,
    {
        Self {
            step: Step::Cold {
                step: pending.enqueue(wait, decision),
            },
        }
    }
}

impl<S, K, L, R, Req> PendingRequest<S, K, L, R, Req>
where
    K: Hash,
    L: Backend<K>,
    S: Service<Req>,
    R: ResponseHooks<Req, K, S::Response, S::Error>,
{
    /// The step in which the request waits, or a denial if it cannot wait.
    fn enqueue(mut self, wait: Duration, mut decision: Decision) -> ColdStepOf<S, K, L, R, Req> {
        let wait = match self.reservation.enqueue(wait, self.options.order) {
            Ok(wait) => wait,
            Err(again) => return self.deny(again, again.retry_after),
        };
        // A request that is denied from here on leaves the line like any other.
        let timeout = self.respond.timeout(&self.request);
        if let Some(excess) = timeout.and_then(|timeout| wait.checked_sub(timeout)) {
            if !excess.is_zero() {
                return self.deny(decision, Some(excess));
            }
        }
        if !wait.is_zero() && !self.seat.try_acquire() {
            return self.deny(decision, Some(wait));
        }
        let state = self.reservation.state();
        if decision.is_admitted() && wait.is_zero() {
            let _ = state.record_admitted();
        } else {
            if decision.is_admitted() {
                decision.verdict = Verdict::Wait(wait);
            }
            state.counts.record_waited();
            state.signals().record_waited(&decision);
        }
        ColdStep::Waiting {
            pending: Some(self),
            decision: CompactDecision::new(&decision),
        }
    }

    /// The step in which the request is denied, whatever the backend decided.
    fn deny(
        self,
        mut decision: Decision,
        retry_after: Option<Duration>,
    ) -> ColdStepOf<S, K, L, R, Req> {
        let state = Arc::clone(self.reservation.state());
        drop(self.reservation);
        drop(self.seat);
        decision.verdict = Verdict::Deny;
        decision.retry_after = retry_after;
        state.counts.record_denied();
        state.signals().record_denied(&decision, false);
        let denied = state.denial_error(decision);
        ColdStep::Done {
            result: Some(state.deny(&self.respond, self.request, denied)),
        }
    }

    /// The step in which a request is denied after its wait.
    #[cold]
    fn fail_wait(self, error: WaitError, decision: Decision) -> ColdStepOf<S, K, L, R, Req> {
        match error {
            WaitError::Shed(wait) => self.deny(decision, Some(wait)),
            WaitError::NoTimer => {
                self.reservation.state().signals().record_no_timer();
                self.deny(decision, decision.wait())
            }
        }
    }

    /// What happens to the request after the backend's decision.
    fn resolve(&self, decided: Result<Decision, StoreError>) -> Action {
        let state = self.reservation.state();
        let taken = self.reservation.key_and_cost();
        self.options.resolve(state, taken, decided)
    }

    /// The step after the backend's decision.
    fn apply_action(mut self, next: Action) -> ColdStepOf<S, K, L, R, Req> {
        match next {
            Action::Pass(decision) => {
                self.seat = RequestSeat::NotRequired;
                ColdStep::WaitingForService {
                    pending: Some(self),
                    decision: decision.as_ref().map(CompactDecision::new),
                }
            }
            Action::Wait(wait, decision) => self.enqueue(wait, decision),
            Action::Deny(denied) => ColdStep::Done {
                result: Some(
                    self.reservation
                        .state()
                        .deny(&self.respond, self.request, denied),
                ),
            },
        }
    }

    /// Hands the request to the service, which is ready.
    fn call(self, decision: Option<CompactDecision>) -> StepOf<S, K, L, R, Req> {
        let Self {
            mut service,
            mut request,
            reservation,
            seat: _,
            mut respond,
            options,
        } = self;
        if let (true, Some(decision)) = (options.share_decision, decision) {
            respond.admit(&mut request, &decision.get());
        }
        if R::NEEDS_RESPONSE {
            respond.capture(&request);
        }
        let future = service.call(request);
        let context = decision
            .filter(|_| R::NEEDS_RESPONSE)
            .map(|decision| ResponseContext {
                reservation,
                respond,
                decision: R::WRITES_HEADERS.then_some(decision),
            });
        Step::Inner { future, context }
    }
}

type ColdStepOf<S, K, L, R, Req> = ColdStep<
    S,
    K,
    L,
    <L as Backend<K>>::Future,
    R,
    Req,
    <S as Service<Req>>::Response,
    <S as Service<Req>>::Error,
>;

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
        // Without a context the response need not be moved again.
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
    /// Goes from step to step until one is pending.
    #[inline(never)]
    fn poll_steps(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<S::Response, S::Error>> {
        let mut step = self.project().step;
        loop {
            let cold = match step.as_mut().project() {
                StepProjection::Inner { future, context } => {
                    let mut result = ready!(future.poll(cx));
                    let settling = match context.take() {
                        Some(context) => context.finish::<Req, _, _>(&mut result),
                        None => None,
                    };
                    let Some(mut settling) = settling else {
                        return Poll::Ready(result);
                    };
                    // After an error the cost stays as it was taken.
                    if Pin::new(&mut settling).poll(cx).is_ready() {
                        return Poll::Ready(result);
                    }
                    let settling = ColdStep::Settling {
                        future: Box::new(settling),
                        result: Some(result),
                    };
                    step.set(Step::Cold { step: settling });
                    return Poll::Pending;
                }
                StepProjection::Cold { step } => step,
            };
            let inner = match cold {
                ColdStep::Done { result } => {
                    return Poll::Ready(result.take().expect(POLLED_AFTER_READY));
                }
                ColdStep::Deciding { future, pending } => {
                    let decided = ready!(Pin::new(future).poll(cx));
                    let pending = pending.take().expect(POLLED_AFTER_READY);
                    let next = pending.resolve(decided);
                    *cold = pending.apply_action(next);
                    continue;
                }
                ColdStep::Waiting { pending, decision } => {
                    let waiting = pending.as_mut().expect(POLLED_AFTER_READY);
                    if let Err(error) = ready!(waiting.reservation.poll_turn(cx)) {
                        let decision = decision.get();
                        let failed = pending.take().expect(POLLED_AFTER_READY);
                        *cold = failed.fail_wait(error, decision);
                        continue;
                    }
                    waiting.seat = RequestSeat::NotRequired;
                    // The state is no longer cached by the processor: read only if needed.
                    let is_read = R::WRITES_HEADERS || waiting.options.share_decision;
                    let decision = (is_read || R::NEEDS_RESPONSE).then_some(decision);
                    let decision = decision.map(|decision| {
                        if is_read {
                            waiting.reservation.refresh_decision(*decision)
                        } else {
                            *decision
                        }
                    });
                    // Nearly always ready, and then nothing is moved.
                    let ready = waiting.service.poll_ready(cx);
                    waiting.reservation.commit();
                    match ready {
                        Poll::Ready(Ok(())) => {
                            pending.take().expect(POLLED_AFTER_READY).call(decision)
                        }
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                        Poll::Pending => {
                            let pending = pending.take();
                            *cold = ColdStep::WaitingForService { pending, decision };
                            return Poll::Pending;
                        }
                    }
                }
                ColdStep::WaitingForService { pending, decision } => {
                    let ready = pending
                        .as_mut()
                        .expect(POLLED_AFTER_READY)
                        .service
                        .poll_ready(cx);
                    if let Err(error) = ready!(ready) {
                        return Poll::Ready(Err(error));
                    }
                    let decision = *decision;
                    pending.take().expect(POLLED_AFTER_READY).call(decision)
                }
                ColdStep::Settling { future, result } => {
                    let _ = ready!(Pin::new(future).poll(cx));
                    return Poll::Ready(result.take().expect(POLLED_AFTER_READY));
                }
            };
            step.set(inner);
        }
    }
}

impl<K: Hash, L: Backend<K>, R> ResponseContext<K, L, R> {
    /// States the limit in the response and settles the cost. The future, if any, ends when the
    /// backend has done so.
    fn finish<Req, Res, Err>(&self, result: &mut Result<Res, Err>) -> Option<L::Future>
    where
        R: ResponseHooks<Req, K, Res, Err>,
    {
        if let (Some(decision), Ok(response)) = (&self.decision, &mut *result) {
            let (state, decision) = (self.reservation.state(), decision.get());
            state.with_policies(|policies| self.respond.tell(response, policies, &decision));
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

/// Manual impl: requests and keys must not be logged, and closures are not `Debug`.
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
                ColdStep::Deciding { .. } => "deciding",
                ColdStep::Waiting { .. } => "waiting",
                ColdStep::WaitingForService { .. } => "waiting for the service",
                ColdStep::Settling { .. } => "settling",
                ColdStep::Done { .. } => "done",
            },
        };
        f.debug_struct("ResponseFuture")
            .field("step", &step)
            .finish_non_exhaustive()
    }
}
