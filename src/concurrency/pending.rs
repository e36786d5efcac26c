//! A request that waits: for a permit, then for the inner service.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tower_service::Service;

use super::claim::{Claim, Usage};
use super::permit::{Permit, Place};
use super::state::{Options, State};
use crate::clock::{Clock, MonotonicClock, MonotonicSleep, Timer};
use crate::queue::RequestSeat;
use crate::respond::ResponseHooks;

pub(super) const POLLED_AFTER_READY: &str = "the future was polled again after it had been ready";

/// A request that waits, and what it needs to go on, such as a clone of the service.
pub(super) struct PendingRequest<S, R, Req> {
    service: S,
    /// Taken when the request leaves the limit.
    request: Option<Req>,
    waits_for: WaitsFor,
    /// Given back when the request goes on or is dropped.
    seat: RequestSeat,
    pub(super) respond: R,
    options: Options,
    state: Arc<State>,
}

enum WaitsFor {
    /// A permit, until the time is over. The timer is set at the first poll.
    Permit(Place, Option<MonotonicSleep>),
    /// The inner service.
    Service(Option<Permit>),
}

/// How a pending request ends: with the future of the inner service, or with a result.
pub(super) enum End<F, T> {
    Called(F, Option<Permit>),
    Done(T),
}

type EndOf<S, Req> = End<
    <S as Service<Req>>::Future,
    Result<<S as Service<Req>>::Response, <S as Service<Req>>::Error>,
>;

impl<S, R, Req> PendingRequest<S, R, Req> {
    pub(super) const fn new(
        service: S,
        request: Req,
        place: Place,
        seat: RequestSeat,
        respond: R,
        options: Options,
        state: Arc<State>,
    ) -> Self {
        Self {
            service,
            request: Some(request),
            waits_for: WaitsFor::Permit(place, None),
            seat,
            respond,
            options,
            state,
        }
    }

    pub(super) const fn waits_for(&self) -> &'static str {
        match self.waits_for {
            WaitsFor::Permit(..) => "waiting",
            WaitsFor::Service(_) => "waiting for the service",
        }
    }
}

impl<S, R, Req> PendingRequest<S, R, Req>
where
    S: Service<Req>,
    R: ResponseHooks<Req, (), S::Response, S::Error>,
{
    /// Polls until the request leaves the limit.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<EndOf<S, Req>> {
        if let WaitsFor::Permit(place, sleep) = &mut self.waits_for {
            let permit = match place.poll(cx) {
                Poll::Ready(permit) => permit,
                Poll::Pending => {
                    let deadline = || MonotonicClock.now().plus(self.options.max_wait);
                    let sleep = sleep.get_or_insert_with(|| MonotonicClock.sleep_until(deadline()));
                    ready!(Pin::new(sleep).poll(cx));
                    // It may have been granted meanwhile.
                    place.leave()
                }
            };
            let claim = place.claim();
            self.seat = RequestSeat::NotRequired;
            let Some(permit) = permit else {
                return Poll::Ready(End::Done(self.deny(claim)));
            };
            self.waits_for = WaitsFor::Service(Some(permit));
        }
        ready!(self.service.poll_ready(cx)).map_or_else(
            |error| Poll::Ready(End::Done(Err(error))),
            |()| {
                let request = self.request.take().expect(POLLED_AFTER_READY);
                let future = self.service.call(request);
                let WaitsFor::Service(permit) = &mut self.waits_for else {
                    unreachable!("the service is called last");
                };
                Poll::Ready(End::Called(future, permit.take()))
            },
        )
    }

    /// The answer to a request whose time is over, or that was displaced in the line.
    fn deny(&mut self, claim: Claim) -> Result<S::Response, S::Error> {
        let request = self.request.take().expect(POLLED_AFTER_READY);
        let limit = self.state.table.usage(claim).limit;
        let full = Usage {
            in_flight: limit,
            limit,
        };
        let denied = self.state.deny(true, full, &self.options);
        self.state.refuse(&self.respond, request, denied)
    }
}
