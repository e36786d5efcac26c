//! The response future: one request from the decision to its response.

use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::gate::{Exit, Gate};
use super::held::Held;
use super::options::LayerOptions;
use super::pending::{Outcome, POLLED_AFTER_READY, PendingRequest};
use crate::key::KeyExtractor;
use crate::respond::ResponseHooks;

pin_project! {
    /// The response of a [`Limit`](super::Limit).
    ///
    /// # Cancel safety
    /// Dropping it while the request waits gives back what it has taken, and all requests behind it move
    /// up. The cost of a rate limit that admitted the request, at once or later, stays taken: otherwise
    /// requests that are begun and dropped would be free. The permit of a concurrency limit is released,
    /// and an [adaptive](crate::ConcurrencyLimitLayer::adaptive) one learns how long the request has
    /// lasted at least.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, K, G, R, Req>
    where
        S: Service<Req>,
        K: KeyExtractor<Req>,
        G: Gate<K::Key>,
    {
        #[pin]
        step: StepOf<S, K::Key, G, R, Req>,
    }
}

type StepOf<S, K, G, R, Req> = Step<
    S,
    K,
    G,
    R,
    Req,
    <S as Service<Req>>::Future,
    Result<<S as Service<Req>>::Response, <S as Service<Req>>::Error>,
>;

type ColdStepOf<S, K, G, R, Req> =
    ColdStep<S, K, G, R, Req, Result<<S as Service<Req>>::Response, <S as Service<Req>>::Error>>;

pin_project! {
    #[project = StepProjection]
    enum Step<S, K, G, R, Req, F, Res>
    where
        G: Gate<K>,
    {
        /// The inner service has the request.
        Inner {
            // Dropped before the ticket: the request is in flight until then.
            #[pin]
            future: F,
            after: After<K, G, R>,
        },
        /// All other steps. They are one variant, so that a single test finds the common one.
        Cold {
            step: ColdStep<S, K, G, R, Req, Res>,
        },
    }
}

enum ColdStep<S, K, G: Gate<K>, R, Req, Res> {
    /// The request waits.
    Pending(PendingRequest<S, K, G, R, Req>),
    /// The response is ready, and the gate is settling the cost.
    Settling {
        future: Box<G::Settling>,
        ended: Option<(Option<G::Ticket>, Res)>,
    },
    /// The result is known.
    Done { result: Option<Res> },
}

/// What there is to do once there is a response.
pub(super) enum After<K, G: Gate<K>, R> {
    Nothing,
    /// The ticket leaves.
    Leave(G::Ticket),
    /// The response states the limit, or the cost is settled.
    Finish(ResponseContext<K, G, R>),
}

/// What is needed once there is a response.
pub(super) struct ResponseContext<K, G: Gate<K>, R> {
    held: Held<K, G>,
    respond: R,
}

impl<S, K, G, R, Req> ResponseFuture<S, K, G, R, Req>
where
    S: Service<Req>,
    K: KeyExtractor<Req>,
    G: Gate<K::Key>,
{
    #[inline]
    pub(super) const fn inner(future: S::Future, after: After<K::Key, G, R>) -> Self {
        Self {
            step: Step::Inner { future, after },
        }
    }

    pub(super) const fn done(result: Result<S::Response, S::Error>) -> Self {
        Self::cold(ColdStep::Done {
            result: Some(result),
        })
    }

    pub(super) const fn pending(pending: PendingRequest<S, K::Key, G, R, Req>) -> Self {
        Self::cold(ColdStep::Pending(pending))
    }

    const fn cold(step: ColdStepOf<S, K::Key, G, R, Req>) -> Self {
        Self {
            step: Step::Cold { step },
        }
    }
}

impl<S, K, G, R, Req> Future for ResponseFuture<S, K, G, R, Req>
where
    S: Service<Req>,
    K: KeyExtractor<Req>,
    G: Exit<K::Key, S::Response>,
    R: ResponseHooks<Req, K::Key, S::Response, S::Error>,
{
    type Output = Result<G::Response, S::Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // With nothing to do afterwards the result need not be moved again.
        if let StepProjection::Inner {
            future,
            after: After::Nothing,
        } = self.as_mut().project().step.project()
        {
            return future.poll(cx).map(|result| G::exit(None, result));
        }
        self.poll_steps(cx)
    }
}

impl<S, K, G, R, Req> ResponseFuture<S, K, G, R, Req>
where
    S: Service<Req>,
    K: KeyExtractor<Req>,
    G: Exit<K::Key, S::Response>,
    R: ResponseHooks<Req, K::Key, S::Response, S::Error>,
{
    /// Polls step after step until one is pending.
    #[inline(never)]
    fn poll_steps(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<G::Response, S::Error>> {
        let mut step = self.project().step;
        loop {
            match step.as_mut().project() {
                StepProjection::Inner { future, after } => {
                    // If the service panics it is dropped now, and knows why.
                    let mut own = after.take_ticket();
                    let Poll::Ready(mut result) = future.poll(cx) else {
                        after.put_ticket(own);
                        return Poll::Pending;
                    };
                    let settling = match after {
                        After::Finish(context) if R::NEEDS_RESPONSE => {
                            context.finish::<Req, _, _>(&mut own, &mut result)
                        }
                        _ => None,
                    };
                    if let Some(mut settling) = settling {
                        // If settling fails, the cost stays as it was taken.
                        if Pin::new(&mut settling).poll(cx).is_pending() {
                            step.set(Step::Cold {
                                step: ColdStep::Settling {
                                    future: Box::new(settling),
                                    ended: Some((own, result)),
                                },
                            });
                            return Poll::Pending;
                        }
                    }
                    return Poll::Ready(G::exit(own, result));
                }
                StepProjection::Cold { step: cold } => match cold {
                    ColdStep::Pending(pending) => {
                        let outcome = ready!(pending.poll(cx));
                        let done = ColdStep::Done { result: None };
                        let ColdStep::Pending(mut pending) = mem::replace(cold, done) else {
                            unreachable!("the request was pending");
                        };
                        match outcome {
                            Outcome::Done(result) => return Poll::Ready(G::exit(None, result)),
                            Outcome::Called(future) if R::NEEDS_RESPONSE => {
                                let PendingRequest {
                                    held,
                                    respond,
                                    options,
                                    ..
                                } = pending;
                                let context = ResponseContext::new(held, respond, options);
                                let after = After::Finish(context);
                                step.set(Step::Inner { future, after });
                            }
                            Outcome::Called(future) => {
                                let after = After::leave(pending.held.take_ticket());
                                step.set(Step::Inner { future, after });
                            }
                        }
                    }
                    ColdStep::Settling { future, ended } => {
                        let _ = ready!(Pin::new(future).poll(cx));
                        let (ticket, result) = ended.take().expect(POLLED_AFTER_READY);
                        return Poll::Ready(G::exit(ticket, result));
                    }
                    ColdStep::Done { result } => {
                        return Poll::Ready(G::exit(
                            None,
                            result.take().expect(POLLED_AFTER_READY),
                        ));
                    }
                },
            }
        }
    }
}

impl<K, G: Gate<K>, R> After<K, G, R> {
    #[inline]
    pub(super) fn leave(ticket: Option<G::Ticket>) -> Self {
        ticket.map_or(Self::Nothing, Self::Leave)
    }

    #[inline]
    fn take_ticket(&mut self) -> Option<G::Ticket> {
        if let Self::Finish(context) = self {
            return context.held.take_ticket();
        }
        match mem::replace(self, Self::Nothing) {
            Self::Leave(ticket) => Some(ticket),
            _ => None,
        }
    }

    #[inline]
    fn put_ticket(&mut self, ticket: Option<G::Ticket>) {
        match self {
            Self::Finish(context) => context.held.put_ticket(ticket),
            _ => *self = Self::leave(ticket),
        }
    }
}

impl<K, G: Gate<K>, R> ResponseContext<K, G, R> {
    pub(super) fn new(mut held: Held<K, G>, respond: R, options: LayerOptions) -> Self {
        if options.silent {
            held.forget_decision();
        }
        Self { held, respond }
    }

    /// Writes the headers about the limit and settles the cost. The future, if any, completes when
    /// the gate has settled it.
    fn finish<Req, Res, Err>(
        &self,
        ticket: &mut Option<G::Ticket>,
        result: &mut Result<Res, Err>,
    ) -> Option<G::Settling>
    where
        R: ResponseHooks<Req, K, Res, Err>,
    {
        let Held { gate, key, .. } = &self.held;
        // Without a ticket there was no decision.
        let ticket = ticket.as_mut()?;
        if let (true, Some(decision), Ok(response)) =
            (R::WRITES_HEADERS, self.held.decision(), &mut *result)
        {
            let mut decision = decision.get();
            let (policies, rules) = gate.policies(key, &mut decision);
            self.respond.tell(rules, response, &policies, &decision);
        }
        gate.settle(key, ticket, &|rules| {
            self.respond.settle((key, rules), result)
        })
    }
}

/// Manual impl: requests, keys and closures are not shown.
impl<S, K, G, R, Req> fmt::Debug for ResponseFuture<S, K, G, R, Req>
where
    S: Service<Req>,
    K: KeyExtractor<Req>,
    G: Gate<K::Key>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match &self.step {
            Step::Inner { .. } => "in the service",
            Step::Cold { step } => match step {
                ColdStep::Pending(pending) if pending.held.is_waiting() => "waiting",
                ColdStep::Pending(_) => "waiting for the service",
                ColdStep::Settling { .. } => "settling",
                ColdStep::Done { .. } => "done",
            },
        };
        f.debug_struct("ResponseFuture")
            .field("step", &step)
            .finish_non_exhaustive()
    }
}
