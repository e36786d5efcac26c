//! A request that waits: for its gate, then for the inner service.

use std::task::{Context, Poll, ready};

use tower_service::Service;

use super::gate::Gate;
use super::held::Held;
use super::options::LayerOptions;
use crate::error::RateLimited;
use crate::respond::ResponseHooks;

/// A request that waits, and what it needs to go on, such as a clone of the service.
pub(super) struct PendingRequest<S, K, G: Gate<K>, R, Req> {
    service: S,
    /// Taken when the request leaves the limit.
    request: Option<Req>,
    pub(super) held: Held<K, G>,
    cost: u64,
    pub(super) respond: R,
    pub(super) options: LayerOptions,
}

/// How a pending request ends: with the future of the inner service, or with a result.
pub(super) enum Outcome<F, T> {
    Called(F),
    Done(T),
}

pub(super) type OutcomeOf<S, Req> = Outcome<
    <S as Service<Req>>::Future,
    Result<<S as Service<Req>>::Response, <S as Service<Req>>::Error>,
>;

pub(super) const POLLED_AFTER_READY: &str = "the future was polled again after it had been ready";

impl<S, K, G: Gate<K>, R, Req> PendingRequest<S, K, G, R, Req> {
    pub(super) fn new(
        service: S,
        request: Req,
        (held, cost): (Held<K, G>, u64),
        respond: R,
        options: LayerOptions,
    ) -> Self {
        Self {
            service,
            request: Some(request),
            held,
            cost,
            respond,
            options,
        }
    }

    /// Polls until the request leaves the limit.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<OutcomeOf<S, Req>>
    where
        S: Service<Req>,
        R: ResponseHooks<Req, K, S::Response, S::Error>,
    {
        let waits = self.held.is_waiting();
        if let Err(denied) = ready!(self.held.poll(cx)) {
            return Poll::Ready(Outcome::Done(self.refuse(denied)));
        }
        if waits && self.held.was_decided() {
            self.respond.admitted(&self.held.key, self.cost);
        }
        if let Err(error) = ready!(self.service.poll_ready(cx)) {
            return Poll::Ready(Outcome::Done(Err(error)));
        }
        let mut request = self.request.take().expect(POLLED_AFTER_READY);
        if let (true, Some(decision)) = (self.options.share_decision, self.held.decision()) {
            self.respond.share(&mut request, &decision.get());
        }
        if let Some(cost) = self.held.cost_handle() {
            self.respond.share_cost(&mut request, cost);
        }
        if R::NEEDS_RESPONSE {
            self.respond.capture(&request);
        }
        Poll::Ready(Outcome::Called(self.service.call(request)))
    }

    fn refuse<Res, Err>(&mut self, denied: RateLimited) -> Result<Res, Err>
    where
        R: ResponseHooks<Req, K, Res, Err>,
    {
        let request = self.request.take().expect(POLLED_AFTER_READY);
        let Held { gate, key, .. } = &self.held;
        refuse(gate, Some(key), &self.respond, request, denied)
    }
}

/// The answer to a denied request, with what the response says about the limit.
#[inline(never)]
pub(super) fn refuse<K, G, R, Req, Res, Err>(
    gate: &G,
    key: Option<&K>,
    respond: &R,
    request: Req,
    denied: RateLimited,
) -> Result<Res, Err>
where
    G: Gate<K>,
    R: ResponseHooks<Req, K, Res, Err>,
{
    if let (Some(key), Some(_)) = (key, denied.decision()) {
        respond.denied(key, &denied);
    }
    let decision = denied.decision().copied().filter(|_| R::WRITES_HEADERS);
    let mut answer = respond.deny(request, denied);
    if let (Some(key), Some(mut decision), Ok(response)) = (key, decision, &mut answer) {
        let (policies, rules) = gate.policies(key, &mut decision);
        respond.tell(rules, response, &policies, &decision);
    }
    answer
}
