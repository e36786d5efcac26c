//! The response future: one request from its gate to its response.
//!
//! ```text
//! Waiting ---> Inner ---> the response
//!              ^
//!              +--- a request that its gate admits at once begins here, or as `Passed`
//!
//! Denied ---> the response
//! ```

use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::gate::{Ask, AtGate, Enter, Entering, Exit, Gate, Look};
use super::options::LayerOptions;
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::RateLimited;
use crate::key::KeyExtractor;
use crate::queue::RequestSeat;
use crate::respond::{Protocol, Respond, ResponseHooks, Tell, Watch};

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
        pub(super) step: StepOf<S, K::Key, G, R, Req>,
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
    pub(super) enum Step<S, K, G, R, Req, F, Res>
    where
        G: Gate<K>,
    {
        /// In a line, or until a server has decided. Then until the inner service is ready.
        Waiting { own: Option<Waiting<S, K, G, R, Req>> },
        /// The inner service has the request, and there is nothing to do afterwards.
        Passed { #[pin] future: F },
        /// The inner service has the request.
        Inner {
            // Dropped before what is held: the request is in flight until then.
            #[pin]
            future: F,
            after: After<K, G, R>,
        },
        /// The request was denied.
        Denied { answer: Option<Res> },
    }
}

/// A request that waits, and what it needs to go on, such as a clone of the service.
pub(super) struct Waiting<S, K, G: Gate<K>, R, Req> {
    pub(super) service: S,
    /// Taken when the request leaves the limit.
    pub(super) request: Option<Req>,
    pub(super) held: Held<K, G>,
    pub(super) ask: Ask,
    pub(super) options: LayerOptions,
    pub(super) seat: RequestSeat,
    /// Until when its client will wait.
    pub(super) until: Tick,
    /// What is stated of the limit, once the request may go on. Boxed, as many requests may wait.
    pub(super) decision: Option<Box<Decision>>,
    pub(super) respond: R,
}

/// The gate, the key, and what the gate has given to the request. If it is dropped while the request waits, the request
/// leaves the gate.
pub(super) struct Held<K, G: Gate<K>> {
    pub(super) gate: Arc<G>,
    pub(super) key: K,
    pub(super) entry: G::Entry,
    pub(super) waits: bool,
}

/// What there is to do once there is a response.
pub(super) enum After<K, G: Gate<K>, R> {
    /// What is held is released.
    Release(G::Entry),
    /// The response states the limit, if there is a decision, and the cost is settled.
    Finish {
        held: Held<K, G>,
        decision: Option<Decision>,
        respond: R,
    },
}

impl<S, K, G, R, Req> ResponseFuture<S, K, G, R, Req>
where
    S: Service<Req>,
    K: KeyExtractor<Req>,
    G: Gate<K::Key>,
{
    /// The answer to a request that the service does not get.
    pub(super) fn denied(answer: Result<S::Response, S::Error>) -> Self {
        let answer = Some(answer);
        Self {
            step: Step::Denied { answer },
        }
    }
}

const POLLED_AFTER_READY: &str = "the future was polled again after it had been ready";

impl<S, K, G, R, Req> Future for ResponseFuture<S, K, G, R, Req>
where
    S: Service<Req>,
    K: KeyExtractor<Req>,
    G: Exit<K::Key, S::Response> + Enter<K::Key>,
    R: ResponseHooks<Req, K::Key, S::Response, S::Error>,
{
    type Output = Result<G::Response, S::Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // With nothing to do afterwards the result need not be moved again.
        if let StepProjection::Passed { future } = self.as_mut().project().step.project() {
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
    fn poll_steps(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<G::Response, S::Error>>
    where
        G: Enter<K::Key>,
        R: ResponseHooks<Req, K::Key, S::Response, S::Error>,
    {
        let mut step = self.project().step;
        let (entry, result) = loop {
            match step.as_mut().project() {
                StepProjection::Waiting { own } => {
                    let waiting = own.as_mut().expect(POLLED_AFTER_READY);
                    if waiting.held.waits {
                        match ready!(waiting.poll_enter(cx)) {
                            Ok(figures) => waiting.pass(figures),
                            Err(denied) => break (G::Entry::default(), waiting.refuse(denied)),
                        }
                    }
                    let ready = ready!(waiting.service.poll_ready(cx));
                    let mut own = own.take().expect(POLLED_AFTER_READY);
                    if let Err(error) = ready {
                        break (G::Entry::default(), Err(error));
                    }
                    let request = own.request.take().expect(POLLED_AFTER_READY);
                    let future = own.service.call(request);
                    let after = After::Finish {
                        held: own.held,
                        decision: own.decision.map(|decision| *decision),
                        respond: own.respond,
                    };
                    step.set(Step::Inner { future, after });
                }
                StepProjection::Passed { future } => {
                    break (G::Entry::default(), ready!(future.poll(cx)));
                }
                StepProjection::Inner { future, after } => {
                    // If the service panics it is dropped now, and knows why.
                    let mut entry = mem::take(after.entry());
                    let Poll::Ready(mut result) = future.poll(cx) else {
                        *after.entry() = entry;
                        return Poll::Pending;
                    };
                    after.finish::<Req, _, _>(&mut entry, &mut result);
                    break (entry, result);
                }
                StepProjection::Denied { answer } => {
                    let answer = answer.take().expect(POLLED_AFTER_READY);
                    break (G::Entry::default(), answer);
                }
            }
        };
        Poll::Ready(G::exit(entry, result))
    }
}

impl<S, K, G: Enter<K>, R, Req> Waiting<S, K, G, R, Req> {
    /// Polls until the request leaves the gate.
    fn poll_enter(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Decision>, RateLimited>> {
        let mut figures = None;
        let entering = Entering {
            ask: self.ask,
            seat: &mut self.seat,
            until: self.until,
            figures: &mut figures,
            up_to: Look::Holds,
        };
        let Held {
            gate, key, entry, ..
        } = &mut self.held;
        let entered = ready!(gate.at(key, entry).poll_enter(entering, Some(cx)));
        self.held.waits = false;
        self.seat = RequestSeat::NotRequired;
        Poll::Ready(entered.map(|()| figures))
    }

    /// Goes on to the service.
    fn pass<Res, Err>(&mut self, figures: Option<Decision>)
    where
        R: ResponseHooks<Req, K, Res, Err>,
    {
        let request = self.request.as_mut().expect(POLLED_AFTER_READY);
        let Held {
            gate, key, entry, ..
        } = &mut self.held;
        let told = (self.ask.weight.cost, figures.as_ref());
        prepare(
            (&**gate, key, entry),
            &self.respond,
            self.options,
            request,
            told,
        );
        let is_stated = R::WRITES_HEADERS && !self.options.silent;
        self.decision = figures.filter(|_| is_stated).map(Box::new);
    }

    fn refuse<Res, Err>(&mut self, denied: RateLimited) -> Result<Res, Err>
    where
        R: ResponseHooks<Req, K, Res, Err>,
    {
        let request = self.request.take().expect(POLLED_AFTER_READY);
        let Held {
            gate, key, entry, ..
        } = &mut self.held;
        let at = Some((&**gate, &*key, entry));
        refuse(at, &self.respond, request, denied)
    }
}

impl<K, G: Gate<K>> Drop for Held<K, G> {
    #[inline]
    fn drop(&mut self) {
        if self.waits {
            self.gate.leave(&self.key, &mut self.entry);
        }
    }
}

impl<K, G: Enter<K>, R> After<K, G, R> {
    const fn entry(&mut self) -> &mut G::Entry {
        match self {
            Self::Release(entry) => entry,
            Self::Finish { held, .. } => &mut held.entry,
        }
    }

    /// Writes the headers about the limit and settles the cost.
    fn finish<Req, Res, Err>(&self, entry: &mut G::Entry, result: &mut Result<Res, Err>)
    where
        R: ResponseHooks<Req, K, Res, Err>,
    {
        let Self::Finish {
            held: Held { gate, key, .. },
            decision,
            respond,
        } = self
        else {
            return;
        };
        if let (true, Some(decision), Ok(response)) = (R::WRITES_HEADERS, *decision, &mut *result) {
            let tell = &respond.parts().tell;
            gate.at(key, entry)
                .policies(decision, &mut |rules, policies, decision| {
                    tell.tell(rules, response, policies, decision);
                });
        }
        let mut at = gate.at(key, entry);
        at.settle(&|rules, at_end| respond.settle(rules, at_end, result.as_ref()));
    }
}

/// Tells the watchers of a request and the request itself what its gate has decided.
#[inline]
pub(super) fn prepare<K, G, R, Req, Res, Err>(
    (gate, key, entry): (&G, &K, &mut G::Entry),
    respond: &R,
    options: LayerOptions,
    request: &mut Req,
    (cost, figures): (u64, Option<&Decision>),
) where
    G: Enter<K>,
    R: ResponseHooks<Req, K, Res, Err>,
{
    respond.parts().watch.saw(key, Ok(cost));
    if let (true, Some(decision)) = (options.share_decision, figures) {
        <R::Deny as Respond<Req, Res, Err>>::Protocol::share(request, decision);
    }
    if options.shares_cost {
        if let Some(cost) = gate.at(key, entry).cost_handle() {
            <R::Deny as Respond<Req, Res, Err>>::Protocol::share_cost(request, cost);
        }
    }
}

/// The answer to a denied request, with what the response says about the limit.
#[cold]
pub(super) fn refuse<K, G, R, Req, Res, Err>(
    at: Option<(&G, &K, &mut G::Entry)>,
    respond: &R,
    request: Req,
    denied: RateLimited,
) -> Result<Res, Err>
where
    G: Enter<K>,
    R: ResponseHooks<Req, K, Res, Err>,
{
    let parts = respond.parts();
    if let (Some((_, key, _)), Some(_)) = (&at, denied.decision()) {
        parts.watch.saw(key, Err(&denied));
    }
    let decision = denied.decision().copied().filter(|_| R::WRITES_HEADERS);
    let mut answer = parts.deny.deny(request, denied);
    if let (Some((gate, key, entry)), Some(decision), Ok(response)) = (at, decision, &mut answer) {
        gate.at(key, entry)
            .policies(decision, &mut |rules, policies, decision| {
                parts.tell.tell(rules, response, policies, decision);
            });
    }
    answer
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
            Step::Waiting { .. } => "waiting",
            Step::Passed { .. } | Step::Inner { .. } => "in the service",
            Step::Denied { .. } => "denied",
        };
        f.debug_struct("ResponseFuture")
            .field("step", &step)
            .finish_non_exhaustive()
    }
}
