//! The response future: one request from its permit to its response.

use std::{
    fmt,
    future::Future,
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::adaptive::Outcome;
use super::hold::{Held, Hold};
use super::pending::{End, POLLED_AFTER_READY, PendingRequest};
use super::permit::Permit;
use super::state::State;
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::decision::{CompactDecision, Verdict};
use crate::respond::ResponseHooks;

pin_project! {
    /// The response of a [`ConcurrencyLimit`](super::ConcurrencyLimit) service.
    ///
    /// # Cancel safety
    /// Dropping it releases the permit, or leaves the line, and the next waiter of the key goes on. An
    /// [adaptive](super::ConcurrencyLayer::adaptive) limit learns how long it has lasted at least.
    #[must_use = "futures do nothing unless polled"]
    pub struct ConcurrencyFuture<S, R, H, Req>
    where
        S: Service<Req>,
    {
        #[pin]
        step: StepOf<S, R, Req>,
        hold: PhantomData<fn() -> H>,
    }

    impl<S, R, H, Req> PinnedDrop for ConcurrencyFuture<S, R, H, Req>
    where
        S: Service<Req>,
    {
        fn drop(this: Pin<&mut Self>) {
            if let StepProjection::Inner { permit, started, .. } = this.project().step.project() {
                if let (Some(started), Some(permit)) = (started.take(), &permit.0) {
                    started.record(permit, Outcome::Cancelled);
                }
            }
        }
    }
}

type StepOf<S, R, Req> = Step<
    S,
    R,
    Req,
    <S as Service<Req>>::Future,
    Result<<S as Service<Req>>::Response, <S as Service<Req>>::Error>,
>;

pin_project! {
    #[project = StepProjection]
    enum Step<S, R, Req, F, T> {
        /// The inner service has the request.
        Inner {
            // Dropped before the permit: the request is in flight until then.
            #[pin]
            future: F,
            permit: Held,
            told: Option<Told<R>>,
            // If the limit is adaptive. `None` while the future is polled: a panic is no sample.
            started: Option<Started>,
        },
        /// The request waits.
        Pending { pending: PendingRequest<S, R, Req> },
        /// The result is known.
        Done { result: Option<T> },
    }
}

/// What the response says about the limit.
pub(super) struct Told<R> {
    pub(super) respond: R,
    pub(super) decision: CompactDecision,
}

/// When a request got its permit, and how many were in flight then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Started {
    at: Tick,
    in_flight: u64,
}

impl Started {
    /// Reads the clock, if the limit is adaptive.
    #[inline]
    pub(super) fn begin(state: &State) -> Option<Tick> {
        state.is_adaptive().then(|| MonotonicClock.now())
    }

    /// A request that began at a moment of [`begin`](Self::begin).
    #[inline]
    pub(super) fn new(begun: Option<Tick>, in_flight: u64) -> Option<Self> {
        let at = begun?;
        Some(Self { at, in_flight })
    }

    /// Tells the limit how the request has ended.
    fn record(self, permit: &Permit, outcome: Outcome) {
        let (state, now) = (permit.state(), MonotonicClock.now());
        let (latency, table) = (now.since(self.at), &state.table);
        // A request that fills the part of its priority has filled the limit.
        let in_flight = permit.priority().whole_of(self.in_flight);
        if let Some(controller) = &state.controller {
            let store = |limit| table.store_limit(limit);
            if controller.record(now, latency, in_flight, outcome, store) {
                table.grant_all();
            }
        } else if let Some(limits) = &table.key_limits {
            table.record(limits, permit.id(), now, |run| {
                run.record(now, latency, in_flight, outcome)
            });
        }
    }
}

/// What the response says about the limit, of which `permit` is a part.
fn shown_decision(permit: &Permit) -> CompactDecision {
    CompactDecision::new(&State::decision(Verdict::Admit, permit.usage()))
}

impl<S: Service<Req>, R, H, Req> ConcurrencyFuture<S, R, H, Req> {
    #[inline]
    pub(super) const fn inner(
        future: S::Future,
        permit: Held,
        told: Option<Told<R>>,
        started: Option<Started>,
    ) -> Self {
        Self::at(Step::Inner {
            future,
            permit,
            told,
            started,
        })
    }

    pub(super) const fn pending(pending: PendingRequest<S, R, Req>) -> Self {
        Self::at(Step::Pending { pending })
    }

    pub(super) const fn done(result: Result<S::Response, S::Error>) -> Self {
        Self::at(Step::Done {
            result: Some(result),
        })
    }

    const fn at(step: StepOf<S, R, Req>) -> Self {
        Self {
            step,
            hold: PhantomData,
        }
    }
}

impl<S, R, H, Req> Future for ConcurrencyFuture<S, R, H, Req>
where
    S: Service<Req>,
    R: ResponseHooks<Req, (), S::Response, S::Error> + Clone,
    H: Hold<S::Response>,
{
    type Output = Result<H::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut step = self.project().step;
        loop {
            match step.as_mut().project() {
                StepProjection::Inner {
                    future,
                    permit,
                    told,
                    started,
                } => {
                    let begun = started.take();
                    let Poll::Ready(mut result) = future.poll(cx) else {
                        *started = begun;
                        return Poll::Pending;
                    };
                    if let (Some(started), Some(permit)) = (begun, &permit.0) {
                        let outcome = result.as_ref().map_or(Outcome::Dropped, H::outcome);
                        started.record(permit, outcome);
                    }
                    if let (Some(told), Ok(response), Some(permit)) =
                        (told.take(), &mut result, &permit.0)
                    {
                        let decision = told.decision.get();
                        let policies = permit.state().policies(decision.limit);
                        told.respond.tell(response, &policies, &decision);
                    }
                    let permit = Held(permit.0.take());
                    return Poll::Ready(result.map(|response| H::hold(response, permit)));
                }
                StepProjection::Pending { pending } => match ready!(pending.poll(cx)) {
                    End::Done(result) => {
                        step.set(Step::Done { result: None });
                        return Poll::Ready(result.map(|response| H::hold(response, Held(None))));
                    }
                    End::Called(future, permit) => {
                        let decision = permit
                            .as_ref()
                            .filter(|_| R::WRITES_HEADERS)
                            .map(shown_decision);
                        let told = decision.map(|decision| Told {
                            respond: pending.respond.clone(),
                            decision,
                        });
                        let started = permit.as_ref().and_then(|permit| {
                            // A fixed limit needs no look at the table.
                            let begun = Started::begin(permit.state())?;
                            Started::new(Some(begun), permit.usage().in_flight)
                        });
                        step.set(Step::Inner {
                            future,
                            permit: Held(permit),
                            told,
                            started,
                        });
                    }
                },
                StepProjection::Done { result } => {
                    let result = result.take().expect(POLLED_AFTER_READY);
                    return Poll::Ready(result.map(|response| H::hold(response, Held(None))));
                }
            }
        }
    }
}

/// Manual impl: requests and closures are not shown.
impl<S: Service<Req>, R, H, Req> fmt::Debug for ConcurrencyFuture<S, R, H, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match &self.step {
            Step::Inner { .. } => "in the service",
            Step::Pending { pending } => pending.waits_for(),
            Step::Done { .. } => "done",
        };
        f.debug_struct("ConcurrencyFuture")
            .field("step", &step)
            .finish_non_exhaustive()
    }
}
