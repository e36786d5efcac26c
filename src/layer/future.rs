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

use super::place::{Lost, Place};
use super::policy::{Next, Policy};
use super::service::deny;
use crate::decision::Compact;
use crate::decision::Decision;
use crate::decision::Verdict;
use crate::error::StoreError;
use crate::key::KeyExtractor;
use crate::limiter::KeyedLimiter;
use crate::queue::Sitting;
use crate::respond::Answer;
use crate::respond::Settle;

pin_project! {
    /// The response of a [`RateLimit`](super::RateLimit) service.
    ///
    /// # Cancel safety
    /// Dropping it while the request waits for its turn gives the cost back and everyone behind
    /// moves up. Later, or when the request was admitted at once, the cost stays taken: else
    /// requests that are begun and dropped would be free.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, K, L, R, Req>
    where
        S: Service<Req>,
        K: KeyExtractor<Req>,
        L: KeyedLimiter<K::Key>,
    {
        #[pin]
        step: Step<S, K::Key, L, L::Future, R, Req, S::Future, S::Response, S::Error>,
    }
}

pin_project! {
    #[project = StepProjection]
    enum Step<S, K, L, D, R, Req, F, Res, Err>
    where
        L: KeyedLimiter<K>,
    {
        /// The service has the request.
        Inner {
            #[pin]
            future: F,
            after: Option<After<K, L, R>>,
        },
        /// It has not, or no longer. All other steps are one, so that the one of nearly every
        /// request is found by a look and not in a list.
        Aside {
            aside: Aside<S, K, L, D, R, Req, Res, Err>,
        },
    }
}

enum Aside<S, K, L, D, R, Req, Res, Err>
where
    L: KeyedLimiter<K>,
{
    /// The limiter has been asked and does not know yet.
    Deciding {
        deciding: Distant<D>,
        later: Option<Later<S, K, L, R, Req>>,
    },
    /// The request has its place in line.
    Waiting {
        later: Option<Later<S, K, L, R, Req>>,
        decision: Compact,
    },
    /// The request may go on as soon as the service is ready for it.
    Readying {
        later: Option<Later<S, K, L, R, Req>>,
        decision: Option<Compact>,
    },
    /// The response is there, and the limiter is told what the request cost.
    Settling {
        settling: Distant<D>,
        result: Option<Result<Res, Err>>,
    },
    /// The answer is known.
    Done { answer: Option<Result<Res, Err>> },
}

/// What asks somebody who does not answer on the spot. It stands elsewhere, or it would be the most
/// of the future of every request, also where nobody is ever asked; and a hundred thousand may wait.
type Distant<D> = Box<D>;

/// What is needed to go on later: the request, and a clone of the service for it.
pub(super) struct Later<S, K, L: KeyedLimiter<K>, R, Req> {
    pub(super) service: S,
    pub(super) request: Req,
    pub(super) place: Place<K, L>,
    /// Given back when the request goes on or is dropped.
    pub(super) sitting: Sitting,
    pub(super) respond: R,
    pub(super) policy: Policy,
}

/// What is needed once the response is there.
pub(super) struct After<K, L: KeyedLimiter<K>, R> {
    pub(super) place: Place<K, L>,
    pub(super) respond: R,
    /// If it is to be told.
    pub(super) decision: Option<Compact>,
}

const TAKEN: &str = "the future was polled again after it had been ready";

impl<S, K, L, R, Req> ResponseFuture<S, K, L, R, Req>
where
    S: Service<Req>,
    K: KeyExtractor<Req>,
    L: KeyedLimiter<K::Key>,
{
    #[inline]
    pub(super) const fn inner(future: S::Future, after: Option<After<K::Key, L, R>>) -> Self {
        Self {
            step: Step::Inner { future, after },
        }
    }

    pub(super) const fn done(answer: Result<S::Response, S::Error>) -> Self {
        Self {
            step: Step::Aside {
                aside: Aside::Done {
                    answer: Some(answer),
                },
            },
        }
    }

    pub(super) fn deciding(deciding: L::Future, later: Later<S, K::Key, L, R, Req>) -> Self {
        Self {
            step: Step::Aside {
                aside: Aside::Deciding {
                    deciding: Box::new(deciding),
                    later: Some(later),
                },
            },
        }
    }

    pub(super) fn waiting(
        later: Later<S, K::Key, L, R, Req>,
        wait: Duration,
        decision: Decision,
    ) -> Self
    where
        R: Answer<Req, S::Response, S::Error>,
    {
        Self {
            step: Step::Aside {
                aside: later.line_up(wait, decision),
            },
        }
    }
}

impl<S, K, L, R, Req> Later<S, K, L, R, Req>
where
    K: Hash,
    L: KeyedLimiter<K>,
    S: Service<Req>,
    R: Answer<Req, S::Response, S::Error>,
{
    /// The step in which the request waits, or a denial if it can not.
    fn line_up(mut self, wait: Duration, decision: Decision) -> AsideOf<S, K, L, R, Req> {
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
        if !self.sitting.sit() {
            return self.deny(decision, Some(wait));
        }
        if !decision.is_admitted() {
            let state = self.place.state();
            state.counts.waited();
            state.signals().waits(&decision);
        }
        Aside::Waiting {
            later: Some(self),
            decision: Compact::new(&decision),
        }
    }

    /// The step in which the request is turned away, whatever the limiter said.
    fn deny(
        self,
        mut decision: Decision,
        retry_after: Option<Duration>,
    ) -> AsideOf<S, K, L, R, Req> {
        let state = Arc::clone(self.place.state());
        drop(self.place);
        drop(self.sitting);
        decision.verdict = Verdict::Deny;
        decision.retry_after = retry_after;
        state.counts.denied();
        state.signals().denied(&decision, false);
        let denied = state.denial(decision);
        Aside::Done {
            answer: Some(deny(&self.respond, &state, self.request, denied)),
        }
    }

    /// The step in which a request is turned away that has waited in vain.
    #[cold]
    fn lose(self, lost: Lost, decision: Decision) -> AsideOf<S, K, L, R, Req> {
        match lost {
            Lost::Shed(wait) => self.deny(decision, Some(wait)),
            Lost::Untimed => {
                self.place.state().signals().untimed();
                self.deny(decision, decision.wait())
            }
        }
    }

    /// What happens to the request after the limiter's answer.
    fn judge(&self, decided: Result<Decision, StoreError>) -> Next {
        let state = self.place.state();
        let next = self.policy.judge(state, decided);
        let (key, cost) = self.place.taken();
        self.policy.fall_in(state, key, cost, next)
    }

    /// The step after the limiter's answer.
    fn decided(mut self, next: Next) -> AsideOf<S, K, L, R, Req> {
        match next {
            Next::Pass(decision) => {
                self.sitting = Sitting::Anywhere;
                Aside::Readying {
                    later: Some(self),
                    decision: decision.as_ref().map(Compact::new),
                }
            }
            Next::Wait(wait, decision) => self.line_up(wait, decision),
            Next::Deny(denied) => Aside::Done {
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
    fn call(self, decision: Option<Compact>) -> StepOf<S, K, L, R, Req> {
        let Self {
            mut service,
            mut request,
            place,
            sitting: _,
            respond,
            policy,
        } = self;
        if let (true, Some(decision)) = (policy.share, decision) {
            respond.admit(&mut request, &decision.get());
        }
        let future = service.call(request);
        let after = decision.filter(|_| R::FOLLOWS).map(|decision| After {
            place,
            respond,
            decision: R::TELLS.then_some(decision),
        });
        Step::Inner { future, after }
    }
}

type AsideOf<S, K, L, R, Req> = Aside<
    S,
    K,
    L,
    <L as KeyedLimiter<K>>::Future,
    R,
    Req,
    <S as Service<Req>>::Response,
    <S as Service<Req>>::Error,
>;

type StepOf<S, K, L, R, Req> = Step<
    S,
    K,
    L,
    <L as KeyedLimiter<K>>::Future,
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
    L: KeyedLimiter<K::Key>,
    R: Answer<Req, S::Response, S::Error>,
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
        self.go_on(cx)
    }
}

impl<S, K, L, R, Req> ResponseFuture<S, K, L, R, Req>
where
    S: Service<Req>,
    K: KeyExtractor<Req>,
    L: KeyedLimiter<K::Key>,
    R: Answer<Req, S::Response, S::Error>,
{
    /// From step to step, as far as it goes.
    #[inline(never)]
    fn go_on(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<S::Response, S::Error>> {
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
                    let aside = Aside::Settling {
                        settling: Box::new(settling),
                        result: Some(result),
                    };
                    step.set(Step::Aside { aside });
                    return Poll::Pending;
                }
                StepProjection::Aside { aside } => aside,
            };
            let inner = match aside {
                Aside::Done { answer } => {
                    return Poll::Ready(answer.take().expect(TAKEN));
                }
                Aside::Deciding { deciding, later } => {
                    let decided = ready!(Pin::new(deciding).poll(cx));
                    let later = later.take().expect(TAKEN);
                    let next = later.judge(decided);
                    *aside = later.decided(next);
                    continue;
                }
                Aside::Waiting { later, decision } => {
                    let waiting = later.as_mut().expect(TAKEN);
                    if let Err(lost) = ready!(waiting.place.poll_turn(cx)) {
                        let decision = decision.get();
                        *aside = later.take().expect(TAKEN).lose(lost, decision);
                        continue;
                    }
                    waiting.sitting = Sitting::Anywhere;
                    // It is cold by now, so nobody reads it for nothing.
                    let told = R::TELLS || waiting.policy.share;
                    let decision = (told || R::FOLLOWS).then_some(decision);
                    let decision = decision.map(|decision| {
                        if told {
                            waiting.place.figures_of_now(*decision)
                        } else {
                            *decision
                        }
                    });
                    // Nearly always it is, and nothing need be moved to wait for it.
                    let ready = waiting.service.poll_ready(cx);
                    waiting.place.take_turn();
                    match ready {
                        Poll::Ready(Ok(())) => later.take().expect(TAKEN).call(decision),
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                        Poll::Pending => {
                            let later = later.take();
                            *aside = Aside::Readying { later, decision };
                            return Poll::Pending;
                        }
                    }
                }
                Aside::Readying { later, decision } => {
                    let ready = later.as_mut().expect(TAKEN).service.poll_ready(cx);
                    if let Err(error) = ready!(ready) {
                        return Poll::Ready(Err(error));
                    }
                    let decision = *decision;
                    later.take().expect(TAKEN).call(decision)
                }
                Aside::Settling { settling, result } => {
                    let _ = ready!(Pin::new(settling).poll(cx));
                    return Poll::Ready(result.take().expect(TAKEN));
                }
            };
            step.set(inner);
        }
    }
}

impl<K: Hash, L: KeyedLimiter<K>, R> After<K, L, R> {
    /// Settles the cost and writes about the limit. The future, if any, ends when the limiter
    /// knows.
    fn finish<Req, Res, Err>(&self, result: &mut Result<Res, Err>) -> Option<L::Future>
    where
        R: Answer<Req, Res, Err>,
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
    L: KeyedLimiter<K::Key>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match &self.step {
            Step::Inner { .. } => "with the service",
            Step::Aside { aside } => match aside {
                Aside::Deciding { .. } => "deciding",
                Aside::Waiting { .. } => "waiting",
                Aside::Readying { .. } => "waiting for the service",
                Aside::Settling { .. } => "settling",
                Aside::Done { .. } => "done",
            },
        };
        f.debug_struct("ResponseFuture")
            .field("step", &step)
            .finish_non_exhaustive()
    }
}
