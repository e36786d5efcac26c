//! The response future: one request from the decision to its response.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::after::{After, POLLED_AFTER_READY};
use super::gate::{Exit, Gate};
use super::waiting::{Ended, Waiting};
use crate::key::KeyExtractor;
use crate::respond::ResponseHooks;

pin_project! {
    /// The response of a [`Limit`](super::Limit).
    ///
    /// # Cancel safety
    /// Dropping it while the request waits leaves the line, and all requests behind it move up; a turn that a
    /// server has booked is given back. The cost of a rate limit that admitted the request, at once or later,
    /// stays taken: otherwise requests that are begun and dropped would be free. The permit of a concurrency limit is released,
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

pin_project! {
    #[project = StepProjection]
    enum Step<S, K, G, R, Req, F, Res>
    where
        G: Gate<K>,
    {
        /// For the limit, then for the service.
        Waiting { waiting: Option<Waiting<S, K, G, R, Req>> },
        /// The inner service has the request.
        Inner {
            // Dropped before what is held: the request is in flight until then.
            #[pin]
            future: F,
            after: After<K, G, R>,
        },
        /// The response is ready, and the gate is settling the cost.
        Settling {
            future: Box<G::Settling>,
            ended: Option<(G::Entry, Res)>,
        },
        /// The result is known.
        Done { result: Option<Res> },
    }
}

impl<S, K, G, R, Req> ResponseFuture<S, K, G, R, Req>
where
    S: Service<Req>,
    K: KeyExtractor<Req>,
    G: Gate<K::Key>,
{
    #[inline]
    pub(super) const fn inner(future: S::Future, after: After<K::Key, G, R>) -> Self {
        let step = Step::Inner { future, after };
        Self { step }
    }

    pub(super) const fn done(result: Result<S::Response, S::Error>) -> Self {
        let result = Some(result);
        Self {
            step: Step::Done { result },
        }
    }

    pub(super) const fn waiting(waiting: Waiting<S, K::Key, G, R, Req>) -> Self {
        Self {
            step: Step::Waiting {
                waiting: Some(waiting),
            },
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
            let result = future.poll(cx);
            return result.map(|result| G::exit(G::Entry::default(), result));
        }
        self.poll_steps(cx)
    }
}

impl<S, K, G, R, Req> ResponseFuture<S, K, G, R, Req>
where
    S: Service<Req>,
    K: KeyExtractor<Req>,
    G: Exit<K::Key, S::Response>,
{
    /// Polls step after step until one is pending.
    #[inline(never)]
    fn poll_steps(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<G::Response, S::Error>>
    where
        R: ResponseHooks<Req, K::Key, S::Response, S::Error>,
    {
        let mut step = self.project().step;
        loop {
            match step.as_mut().project() {
                StepProjection::Waiting { waiting } => {
                    let own = waiting.as_mut().expect(POLLED_AFTER_READY);
                    let ended = ready!(own.poll(cx));
                    let own = waiting.take().expect(POLLED_AFTER_READY);
                    match ended {
                        Ended::Done(result) => {
                            return Poll::Ready(G::exit(G::Entry::default(), result));
                        }
                        Ended::Called(future) => {
                            let after = own.after(R::NEEDS_RESPONSE);
                            step.set(Step::Inner { future, after });
                        }
                    }
                }
                StepProjection::Inner { future, after } => {
                    // If the service panics it is dropped now, and knows why.
                    let mut entry = after.take();
                    let Poll::Ready(mut result) = future.poll(cx) else {
                        after.put(entry);
                        return Poll::Pending;
                    };
                    let settling = match after {
                        After::Finish(finish) if R::NEEDS_RESPONSE => {
                            finish.finish::<Req, _, _>(&mut entry, &mut result)
                        }
                        _ => None,
                    };
                    let Some(mut settling) = settling else {
                        return Poll::Ready(G::exit(entry, result));
                    };
                    if Pin::new(&mut settling).poll(cx).is_ready() {
                        return Poll::Ready(G::exit(entry, result));
                    }
                    let future = Box::new(settling);
                    let ended = Some((entry, result));
                    step.set(Step::Settling { future, ended });
                    return Poll::Pending;
                }
                StepProjection::Settling { future, ended } => {
                    // If it fails, the cost stays as it was taken.
                    let _ = ready!(Pin::new(future).poll(cx));
                    let (entry, result) = ended.take().expect(POLLED_AFTER_READY);
                    return Poll::Ready(G::exit(entry, result));
                }
                StepProjection::Done { result } => {
                    let result = result.take().expect(POLLED_AFTER_READY);
                    return Poll::Ready(G::exit(G::Entry::default(), result));
                }
            }
        }
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
            Step::Waiting { waiting: Some(own) } if !own.held.waits => "waiting for the service",
            Step::Waiting { .. } => "waiting",
            Step::Settling { .. } => "settling",
            Step::Done { .. } => "done",
        };
        f.debug_struct("ResponseFuture")
            .field("step", &step)
            .finish_non_exhaustive()
    }
}
