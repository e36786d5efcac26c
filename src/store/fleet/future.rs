//! The future of a decision.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::sync::oneshot;

use super::machine::Machine;
use super::slow::Slow;
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::decision::Decision;
use crate::error::StoreError;
use crate::store::{
    apply::with_receipt,
    cas::{CasStore, error::Failure},
    remote::Deadline,
};

/// A decision that is known at once, or after exchanges of its key.
pub(in crate::store) struct FleetFuture<M: Machine>(State<M>);

enum State<M: Machine> {
    /// `None` after it was returned.
    Ready(Option<Result<Decision, StoreError>>),
    Waiting(Box<Waiting<M>>),
}

/// A request that waits for an exchange of its key.
struct Waiting<M: Machine> {
    machine: Arc<M>,
    request: Request,
    exchanged: oneshot::Receiver<Result<(), StoreError>>,
    deadline: Deadline,
}

/// What is decided.
struct Request {
    hash: u64,
    name: Arc<str>,
    cost: u64,
}

impl<M: Machine> FleetFuture<M> {
    #[inline]
    pub(in crate::store) const fn ready(result: Result<Decision, StoreError>) -> Self {
        Self(State::Ready(Some(result)))
    }

    /// Decides on a request that needs more than the state in the table.
    pub(in crate::store) fn decide_slow(
        machine: &Arc<M>,
        name_of: impl Fn() -> Arc<str>,
        (hash, cost): (u64, u64),
        now: Tick,
    ) -> Self {
        let mut name = None;
        let make_name = || Arc::clone(name.insert(name_of()));
        let exchanged = match machine.decide_slow(hash, make_name, now, cost) {
            Ok(Slow::Decided(decision)) => {
                let decision = with_receipt(&machine.algorithm(), decision, now);
                return Self::ready(Ok(decision));
            }
            Ok(Slow::Wait(exchanged)) => exchanged,
            Err(error) => return Self::ready(Err(error)),
        };
        let name = name.unwrap_or_else(name_of);
        Self::waiting(machine, Request { hash, name, cost }, exchanged)
    }

    /// Decides on the request again after each exchange, within the deadline of a call.
    fn waiting(
        machine: &Arc<M>,
        request: Request,
        exchanged: oneshot::Receiver<Result<(), StoreError>>,
    ) -> Self {
        let ends_at = MonotonicClock.now().plus(machine.link().shared().deadline);
        Self(State::Waiting(Box::new(Waiting {
            machine: Arc::clone(machine),
            request,
            exchanged,
            deadline: Deadline::new(ends_at),
        })))
    }
}

impl<M: Machine> Waiting<M> {
    #[inline(never)]
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Decision, StoreError>> {
        let machine = &self.machine;
        loop {
            match Pin::new(&mut self.exchanged).poll(cx) {
                Poll::Ready(Ok(Ok(()))) => {}
                Poll::Ready(Ok(Err(error))) => return Poll::Ready(Err(error)),
                // The exchange was dropped, with its runtime.
                Poll::Ready(Err(_)) => {
                    let failure = Failure::RuntimeShutDown;
                    return Poll::Ready(Err(failure.in_store(M::Store::NAME)));
                }
                Poll::Pending => {
                    let time_limit = machine.link().shared().deadline;
                    let expired = self.deadline.poll(cx);
                    let failure = Failure::Deadline(time_limit);
                    return expired.map(|()| Err(failure.in_store(M::Store::NAME)));
                }
            }
            let Request { hash, name, cost } = &self.request;
            let now = machine.now();
            match machine.decide_slow(*hash, || Arc::clone(name), now, *cost) {
                Ok(Slow::Decided(decision)) => {
                    let algorithm = machine.algorithm();
                    return Poll::Ready(Ok(with_receipt(&algorithm, decision, now)));
                }
                Ok(Slow::Wait(exchanged)) => self.exchanged = exchanged,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl<M: Machine> Future for FleetFuture<M> {
    type Output = Result<Decision, StoreError>;

    #[expect(clippy::inline_always, reason = "so that no decision is copied")]
    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::Ready(result) => result.take().map_or(Poll::Pending, Poll::Ready),
            State::Waiting(waiting) => {
                let polled = waiting.poll(cx);
                if polled.is_ready() {
                    self.0 = State::Ready(None);
                }
                polled
            }
        }
    }
}
