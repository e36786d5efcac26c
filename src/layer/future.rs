//! The way of one request through the limit to its response.

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
use super::service::deny;
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
    /// Dropping it while the request waits for its turn gives the cost back and everyone behind
    /// moves up. PendingRequest, or when the request was admitted at once, the cost stays taken: else
    /// requests that are begun and dropped would be free.
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
            after: Option<ResponseContext<K, L, R>>,
        },
        /// It has not, or no longer. All other steps are one, so that the one of nearly every
        /// request is found by a look and not in a list.
        ColdStep {
            aside: ColdStep<S, K, L, D, R, Req, Res, Err>,
        },
    }
}

enum ColdStep<S, K, L, D, R, Req, Res, Err>
where
    L: Backend<K>,
{
    /// The limiter has been asked and does not know yet.
    Deciding {
        deciding: BoxedFuture<D>,
        later: Option<PendingRequest<S, K, L, R, Req>>,
    },
    /// The request has its place in line.
    Waiting {
        later: Option<PendingRequest<S, K, L, R, Req>>,
        decision: CompactDecision,
    },
    /// The request may go on as soon as the service is ready for it.
    WaitingForService {
        later: Option<PendingRequest<S, K, L, R, Req>>,
        decision: Option<CompactDecision>,
    },
    /// The response is there, and the limiter is told what the request cost.
    Settling {
        settling: BoxedFuture<D>,
        result: Option<Result<Res, Err>>,
    },
    /// The answer is known.
    Done { answer: Option<Result<Res, Err>> },
}

/// What asks somebody who does not answer on the spot. It stands elsewhere, or it would be the most
/// of the future of every request, also where nobody is ever asked; and a hundred thousand may wait.
type BoxedFuture<D> = Box<D>;

/// What is needed to go on later: the request, and a clone of the service for it.
pub(super) struct PendingRequest<S, K, L: Backend<K>, R, Req> {
    pub(super) service: S,
    pub(super) request: Req,
    pub(super) place: Reservation<K, L>,
    /// Given back when the request goes on or is dropped.
    pub(super) seat: RequestSeat,
    pub(super) respond: R,
    pub(super) policy: LayerOptions,
}

/// What is needed once the response is there.
pub(super) struct ResponseContext<K, L: Backend<K>, R> {
    pub(super) place: Reservation<K, L>,
    pub(super) respond: R,
    /// If it is to be told.
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
        after: Option<ResponseContext<K::Key, L, R>>,
    ) -> Self {
        Self {
            step: Step::Inner { future, after },
        }
    }

    pub(super) const fn done(answer: Result<S::Response, S::Error>) -> Self {
        Self {
            step: Step::ColdStep {
                aside: ColdStep::Done {
                    answer: Some(answer),
                },
            },
        }
    }

    pub(super) fn deciding(
        deciding: L::Future,
        later: PendingRequest<S, K::Key, L, R, Req>,
    ) -> Self {
        Self {
            step: Step::ColdStep {
                aside: ColdStep::Deciding {
                    deciding: Box::new(deciding),
                    later: Some(later),
                },
            },
        }
    }

    pub(super) fn waiting(
        later: PendingRequest<S, K::Key, L, R, Req>,
        wait: Duration,
        decision: Decision,
    ) -> Self
    where
        R: ResponseHooks<Req, S::Response, S::Error>,
    {
        Self {
            step: Step::ColdStep {
                aside: later.line_up(wait, decision),
            },
        }
    }
}

impl<S, K, L, R, Req> PendingRequest<S, K, L, R, Req>
where
    K: Hash,
    L: Backend<K>,
    S: Service<Req>,
    R: ResponseHooks<Req, S::Response, S::Error>,
{
    /// The step in which the request waits, or a denial if it can not.
    fn line_up(mut self, wait: Duration, decision: Decision) -> ColdStepOf<S, K, L, R, Req> {
        let wait = match self.place.line_up(wait, self.policy.order) {
            Ok(wait) => wait,
            Err(again) => return self.deny(again, again.retry_after),
        };
        // What is denied from here on leaves the line again, as anybody may.
        let most = self.respond.timeout(&self.request);
        if let Some(over) = most.and_then(|most| wait.checked_sub(most)) {
            if !over.is_zero() {
                return self.deny(decision, Some(over));
            }
        }
        if !self.seat.sit() {
            return self.deny(decision, Some(wait));
        }
        if !decision.is_admitted() {
            let state = self.place.state();
            state.counts.waited();
            state.signals().waits(&decision);
        }
        ColdStep::Waiting {
            later: Some(self),
            decision: CompactDecision::new(&decision),
        }
    }

    /// The step in which the request is turned away, whatever the limiter said.
    fn deny(
        self,
        mut decision: Decision,
        retry_after: Option<Duration>,
    ) -> ColdStepOf<S, K, L, R, Req> {
        let state = Arc::clone(self.place.state());
        drop(self.place);
        drop(self.seat);
        decision.verdict = Verdict::Deny;
        decision.retry_after = retry_after;
        state.counts.denied();
        state.signals().denied(&decision, false);
        let denied = state.denial(decision);
        ColdStep::Done {
            answer: Some(deny(&self.respond, &state, self.request, denied)),
        }
    }

    /// The step in which a request is turned away that has waited in vain.
    #[cold]
    fn lose(self, lost: WaitError, decision: Decision) -> ColdStepOf<S, K, L, R, Req> {
        match lost {
            WaitError::Shed(wait) => self.deny(decision, Some(wait)),
            WaitError::NoTimer => {
                self.place.state().signals().untimed();
                self.deny(decision, decision.wait())
            }
        }
    }

    /// What happens to the request after the limiter's answer.
    fn resolve(&self, decided: Result<Decision, StoreError>) -> Action {
        let state = self.place.state();
        let next = self.policy.resolve(state, decided);
        let (key, cost) = self.place.taken();
        self.policy.defer_to_waiters(state, key, cost, next)
    }

    /// The step after the limiter's answer.
    fn decided(mut self, next: Action) -> ColdStepOf<S, K, L, R, Req> {
        match next {
            Action::Pass(decision) => {
                self.seat = RequestSeat::NotRequired;
                ColdStep::WaitingForService {
                    later: Some(self),
                    decision: decision.as_ref().map(CompactDecision::new),
                }
            }
            Action::Wait(wait, decision) => self.line_up(wait, decision),
            Action::Deny(denied) => ColdStep::Done {
                answer: Some(deny(
                    &self.respond,
                    self.place.state(),
                    self.request,
                    denied,
                )),
            },
        }
    }

    /// Hands the request to the service, which is ready.
    fn call(self, decision: Option<CompactDecision>) -> StepOf<S, K, L, R, Req> {
        let Self {
            mut service,
            mut request,
            place,
            seat: _,
            respond,
            policy,
        } = self;
        if let (true, Some(decision)) = (policy.share, decision) {
            respond.admit(&mut request, &decision.get());
        }
        let future = service.call(request);
        let after = decision
            .filter(|_| R::NEEDS_RESPONSE)
            .map(|decision| ResponseContext {
                place,
                respond,
                decision: R::WRITES_HEADERS.then_some(decision),
            });
        Step::Inner { future, after }
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
    R: ResponseHooks<Req, S::Response, S::Error>,
{
    type Output = Result<S::Response, S::Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // With nothing to do afterwards the answer need not be moved again.
        if let StepProjection::Inner {
            future,
            after: None,
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
    R: ResponseHooks<Req, S::Response, S::Error>,
{
    /// From step to step, as far as it goes.
    #[inline(never)]
    fn poll_steps(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<S::Response, S::Error>> {
        let mut step = self.project().step;
        loop {
            let aside = match step.as_mut().project() {
                StepProjection::Inner { future, after } => {
                    let mut result = ready!(future.poll(cx));
                    let settling = match after.take() {
                        Some(after) => after.finish::<Req, _, _>(&mut result),
                        None => None,
                    };
                    let Some(mut settling) = settling else {
                        return Poll::Ready(result);
                    };
                    // What cannot be settled stays as it was taken.
                    if Pin::new(&mut settling).poll(cx).is_ready() {
                        return Poll::Ready(result);
                    }
                    let aside = ColdStep::Settling {
                        settling: Box::new(settling),
                        result: Some(result),
                    };
                    step.set(Step::ColdStep { aside });
                    return Poll::Pending;
                }
                StepProjection::ColdStep { aside } => aside,
            };
            let inner = match aside {
                ColdStep::Done { answer } => {
                    return Poll::Ready(answer.take().expect(POLLED_AFTER_READY));
                }
                ColdStep::Deciding { deciding, later } => {
                    let decided = ready!(Pin::new(deciding).poll(cx));
                    let later = later.take().expect(POLLED_AFTER_READY);
                    let next = later.resolve(decided);
                    *aside = later.decided(next);
                    continue;
                }
                ColdStep::Waiting { later, decision } => {
                    let waiting = later.as_mut().expect(POLLED_AFTER_READY);
                    if let Err(lost) = ready!(waiting.place.poll_turn(cx)) {
                        let decision = decision.get();
                        *aside = later.take().expect(POLLED_AFTER_READY).lose(lost, decision);
                        continue;
                    }
                    waiting.seat = RequestSeat::NotRequired;
                    // It is cold by now, so nobody reads it for nothing.
                    let told = R::WRITES_HEADERS || waiting.policy.share;
                    let decision = (told || R::NEEDS_RESPONSE).then_some(decision);
                    let decision = decision.map(|decision| {
                        if told {
                            waiting.place.refresh_decision(*decision)
                        } else {
                            *decision
                        }
                    });
                    // Nearly always it is, and nothing need be moved to wait for it.
                    let ready = waiting.service.poll_ready(cx);
                    waiting.place.commit();
                    match ready {
                        Poll::Ready(Ok(())) => {
                            later.take().expect(POLLED_AFTER_READY).call(decision)
                        }
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                        Poll::Pending => {
                            let later = later.take();
                            *aside = ColdStep::WaitingForService { later, decision };
                            return Poll::Pending;
                        }
                    }
                }
                ColdStep::WaitingForService { later, decision } => {
                    let ready = later
                        .as_mut()
                        .expect(POLLED_AFTER_READY)
                        .service
                        .poll_ready(cx);
                    if let Err(error) = ready!(ready) {
                        return Poll::Ready(Err(error));
                    }
                    let decision = *decision;
                    later.take().expect(POLLED_AFTER_READY).call(decision)
                }
                ColdStep::Settling { settling, result } => {
                    let _ = ready!(Pin::new(settling).poll(cx));
                    return Poll::Ready(result.take().expect(POLLED_AFTER_READY));
                }
            };
            step.set(inner);
        }
    }
}

impl<K: Hash, L: Backend<K>, R> ResponseContext<K, L, R> {
    /// Settles the cost and writes about the limit. The future, if any, ends when the limiter
    /// knows.
    fn finish<Req, Res, Err>(&self, result: &mut Result<Res, Err>) -> Option<L::Future>
    where
        R: ResponseHooks<Req, Res, Err>,
    {
        if let (Some(decision), Ok(response)) = (&self.decision, &mut *result) {
            let (state, decision) = (self.place.state(), decision.get());
            state.with_policies(|policies| self.respond.tell(response, policies, &decision));
        }
        match self.respond.settle(result) {
            Settle::Keep => None,
            settle => self.place.settle(settle),
        }
    }
}

/// By hand: requests, keys and closures are not shown.
impl<S, K, L, R, Req> fmt::Debug for ResponseFuture<S, K, L, R, Req>
where
    S: Service<Req>,
    K: KeyExtractor<Req>,
    L: Backend<K::Key>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match &self.step {
            Step::Inner { .. } => "with the service",
            Step::ColdStep { aside } => match aside {
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
