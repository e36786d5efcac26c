//! A request that waits: for its gate, then for the inner service.

use std::{
    mem,
    task::{Context, Poll, ready},
};

use tower_service::Service;

use super::after::{After, Finish, Held, POLLED_AFTER_READY};
use super::gate::{Ask, Gate, MayWait};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::RateLimited;
use crate::queue::RequestSeat;
use crate::respond::{Event, ResponseHooks};

/// A request that waits, and what it needs to go on, such as a clone of the service.
pub(super) struct Waiting<S, K, G: Gate<K>, R, Req> {
    pub(super) service: S,
    /// Taken when the request leaves the limit.
    pub(super) request: Option<Req>,
    pub(super) held: Held<K, G>,
    pub(super) ask: Ask,
    pub(super) seat: RequestSeat,
    /// Boxed, as many requests may wait, and few have any of it.
    pub(super) rare: Option<Box<Rare>>,
    pub(super) respond: R,
}

#[derive(Default)]
pub(super) struct Rare {
    /// Until when its client will wait.
    until: Option<Tick>,
    /// What is stated of the limit, once the request may go on.
    decision: Option<Decision>,
}

impl Rare {
    pub(super) const fn until(until: Option<Tick>) -> Self {
        let decision = None;
        Self { until, decision }
    }
}

/// How a wait ends: with the future of the inner service, or with a result.
pub(super) enum Ended<F, T> {
    Called(F),
    Done(T),
}

type EndedOf<S, Req> = Ended<
    <S as Service<Req>>::Future,
    Result<<S as Service<Req>>::Response, <S as Service<Req>>::Error>,
>;

impl<S, K, G: Gate<K>, R, Req> Waiting<S, K, G, R, Req> {
    /// Polls until the request leaves the limit.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<EndedOf<S, Req>>
    where
        S: Service<Req>,
        R: ResponseHooks<Req, K, S::Response, S::Error>,
    {
        if self.held.waits {
            let until = self.rare.as_ref().and_then(|rare| rare.until);
            let seat = &mut self.seat;
            let may_wait = MayWait { seat, until };
            let Held {
                gate, key, entry, ..
            } = &mut self.held;
            let entered = ready!(gate.poll_enter(key, self.ask, entry, may_wait, Some(cx)));
            self.held.waits = false;
            self.seat = RequestSeat::NotRequired;
            let passed = match entered {
                Ok(passed) => passed,
                Err(denied) => return Poll::Ready(Ended::Done(self.refuse(denied))),
            };
            if passed.decided {
                let admitted = Event::Admitted(self.ask.cost);
                self.respond.saw(&self.held.key, admitted);
            }
            if let Some(decision) = passed.decision {
                self.rare.get_or_insert_default().decision = Some(decision);
            }
        }
        if let Err(error) = ready!(self.service.poll_ready(cx)) {
            return Poll::Ready(Ended::Done(Err(error)));
        }
        let mut request = self.request.take().expect(POLLED_AFTER_READY);
        if let (true, Some(decision)) = (self.held.options.share_decision, self.decision()) {
            self.respond.share(&mut request, &decision);
        }
        if self.held.options.shares_cost {
            let Held {
                gate, key, entry, ..
            } = &mut self.held;
            if let Some(cost) = gate.cost_handle(key, entry) {
                self.respond.share_cost(&mut request, cost);
            }
        }
        Poll::Ready(Ended::Called(self.service.call(request)))
    }

    fn decision(&self) -> Option<Decision> {
        self.rare.as_ref()?.decision
    }

    /// What there is to do at the end of a request that has gone on.
    pub(super) fn after(mut self, needs_response: bool) -> After<K, G, R> {
        let silent = self.held.options.silent;
        let stated = self.decision().filter(|_| !silent);
        if needs_response {
            After::Finish(Finish {
                held: self.held,
                decision: stated,
                respond: self.respond,
            })
        } else if G::HOLDS {
            After::Release(mem::take(&mut self.held.entry))
        } else {
            After::Nothing
        }
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
        respond.saw(key, Event::Denied(&denied));
    }
    let decision = denied.decision().copied().filter(|_| R::WRITES_HEADERS);
    let mut answer = respond.deny(request, denied);
    if let (Some(key), Some(mut decision), Ok(response)) = (key, decision, &mut answer) {
        let (policies, rules) = gate.policies(key, &mut decision);
        respond.tell(rules, response, &policies, &decision);
    }
    answer
}
