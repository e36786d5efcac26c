//! A request that waits: for the decision, for its turn, or for the inner service.

use std::{
    hash::Hash,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tower_service::Service;

use super::options::{Action, LayerOptions};
use super::reservation::Reservation;
use crate::backend::Backend;
use crate::decision::{CompactDecision, Decision};
use crate::error::{RateLimited, StoreError};
use crate::queue::{Order, RequestSeat};
use crate::respond::ResponseHooks;

/// The future of a backend that does I/O. Boxed, because it would be most of the
/// response future, even if the backend is never pending.
pub(super) type BoxedFuture<D> = Box<D>;

/// A request that waits, and what it needs to go on, such as a clone of the service.
pub(super) struct PendingRequest<S, K, L: Backend<K>, D, R, Req> {
    service: S,
    /// Taken when the request leaves the limit.
    request: Option<Req>,
    pub(super) reservation: Reservation<K, L>,
    /// Given back when the request goes on or is dropped.
    seat: RequestSeat,
    pub(super) respond: R,
    pub(super) options: LayerOptions,
    pub(super) waits_for: WaitsFor<D>,
}

/// What a request waits for.
pub(super) enum WaitsFor<D> {
    /// The backend's decision.
    Decision(BoxedFuture<D>),
    /// Its turn.
    Turn(CompactDecision),
    /// The inner service.
    Service(Option<CompactDecision>),
}

/// How a pending request ends: with the future of the inner service, or with a result.
pub(super) enum Outcome<F, T> {
    Called(F, Option<CompactDecision>),
    Done(T),
}

pub(super) type OutcomeOf<S, Req> = Outcome<
    <S as Service<Req>>::Future,
    Result<<S as Service<Req>>::Response, <S as Service<Req>>::Error>,
>;

pub(super) const POLLED_AFTER_READY: &str = "the future was polled again after it had been ready";

impl<S, K, L: Backend<K>, R, Req> PendingRequest<S, K, L, L::Future, R, Req> {
    pub(super) const fn new(
        service: S,
        request: Req,
        reservation: Reservation<K, L>,
        seat: RequestSeat,
        respond: R,
        options: LayerOptions,
    ) -> Self {
        Self {
            service,
            request: Some(request),
            reservation,
            seat,
            respond,
            options,
            waits_for: WaitsFor::Service(None),
        }
    }
}

impl<S, K, L, R, Req> PendingRequest<S, K, L, L::Future, R, Req>
where
    K: Hash,
    L: Backend<K>,
    S: Service<Req>,
    R: ResponseHooks<Req, K, S::Response, S::Error>,
{
    /// Joins the line. The error is the reason if the request cannot wait.
    pub(super) fn enqueue(
        &mut self,
        wait: Duration,
        decision: Decision,
    ) -> Result<(), RateLimited> {
        let (request, respond) = (&self.request, &self.respond);
        let timeout = || respond.timeout(request.as_ref()?);
        let order = self.options.order;
        self.reservation.record(&decision);
        let waiting = self
            .reservation
            .enqueue(wait, order, &timeout, &mut self.seat, decision)?;
        self.waits_for = WaitsFor::Turn(waiting);
        Ok(())
    }

    /// Polls until the request leaves the limit.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<OutcomeOf<S, Req>> {
        loop {
            match &mut self.waits_for {
                // The code of this step is as large as that of all others together.
                WaitsFor::Decision(future) if !L::IS_IMMEDIATE => {
                    let decided = ready!(Pin::new(future).poll(cx));
                    let waits = match self.resolve(decided) {
                        Action::Pass(decision) => {
                            self.seat = RequestSeat::NotRequired;
                            if let Some(decision) = &decision {
                                self.reservation.record(decision);
                            }
                            let decision = decision.as_ref().map(CompactDecision::new);
                            self.waits_for = WaitsFor::Service(decision);
                            Ok(())
                        }
                        Action::Wait(wait, decision) => self.enqueue(wait, decision),
                        Action::Deny(denied) => Err(denied),
                    };
                    if let Err(denied) = waits {
                        return Poll::Ready(Outcome::Done(self.refuse(denied)));
                    }
                }
                WaitsFor::Turn(decision) => {
                    let decision = *decision;
                    if let Err(shed) = ready!(self.reservation.poll_turn(cx)) {
                        let (seat, decision) = (&mut self.seat, decision.get());
                        let denied = self.reservation.fail_wait(shed, seat, decision);
                        return Poll::Ready(Outcome::Done(self.refuse(denied)));
                    }
                    self.seat = RequestSeat::NotRequired;
                    if R::NEEDS_RESPONSE {
                        self.reservation.record_turn();
                    }
                    let decision = self.shown_decision(decision);
                    self.waits_for = WaitsFor::Service(decision);
                    let ready = self.service.poll_ready(cx);
                    self.reservation.commit();
                    return self.call_if_ready(ready);
                }
                WaitsFor::Decision(_) => unreachable!("an immediate decision is not awaited"),
                WaitsFor::Service(_) => {
                    let ready = self.service.poll_ready(cx);
                    return self.call_if_ready(ready);
                }
            }
        }
    }

    /// What the backend's decision means for the request.
    fn resolve(&self, decided: Result<Decision, StoreError>) -> Action {
        let backend = self.reservation.backend();
        let line_id = || self.reservation.line_id();
        let (_, cost) = self.reservation.key_and_cost();
        let state = self.reservation.state();
        let mut decided = decided;
        if let (Order::Newest, Ok(decision)) = (self.options.order, &decided) {
            if decision.is_denied() && state.lines.has_waiters() && !self.options.shadow {
                let taken_over = state.take_over(line_id(), &backend, cost, *decision);
                decided = Ok(taken_over.unwrap_or(*decision));
            }
        }
        self.options
            .resolve(state, &backend, &line_id, cost, decided)
    }

    /// The decision as the service and the response show it, if they do.
    fn shown_decision(&self, decision: CompactDecision) -> Option<CompactDecision> {
        if R::WRITES_HEADERS || self.options.share_decision {
            Some(self.reservation.refresh_decision(decision))
        } else {
            R::NEEDS_RESPONSE.then_some(decision)
        }
    }

    /// Hands the request to the service once that is ready.
    #[inline]
    fn call_if_ready(&mut self, ready: Poll<Result<(), S::Error>>) -> Poll<OutcomeOf<S, Req>> {
        if let Err(error) = ready!(ready) {
            return Poll::Ready(Outcome::Done(Err(error)));
        }
        let WaitsFor::Service(decision) = self.waits_for else {
            unreachable!("the service is polled last");
        };
        let mut request = self.request.take().expect(POLLED_AFTER_READY);
        if let (true, Some(decision)) = (self.options.share_decision, decision) {
            self.respond.admit(&mut request, &decision.get());
        }
        if R::NEEDS_RESPONSE {
            self.respond.capture(&request);
        }
        let future = self.service.call(request);
        Poll::Ready(Outcome::Called(future, decision))
    }

    pub(super) fn refuse(&mut self, denied: RateLimited) -> Result<S::Response, S::Error> {
        let request = self.request.take().expect(POLLED_AFTER_READY);
        self.reservation
            .state()
            .deny(&self.respond, request, denied)
    }
}
