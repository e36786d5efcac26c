//! The future of a decision.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::sync::oneshot;

use super::decide::decide_slow;
use super::fleet::Fleet;
use super::node::Slow;
use crate::algorithm::Algorithm;
use crate::clock::Clock;
use crate::decision::Decision;
use crate::error::StoreError;
use crate::store::{
    apply::with_receipt,
    cas::{CasStore, error::Failure},
    remote::Deadline,
};

/// The decision of a [`Leased`](super::Leased) limiter: known at once, unless the machine has to ask for
/// units.
///
/// # Cancel safety
/// If it is dropped while it is pending, nothing is taken. Units that were asked for may be taken ahead.
#[must_use = "futures do nothing unless polled"]
pub struct LeasedFuture<S: CasStore, A: Algorithm>(State<S, A>);

enum State<S: CasStore, A: Algorithm> {
    /// `None` after it was returned.
    Ready(Option<Result<Decision, StoreError>>),
    Waiting(Box<Waiting<S, A>>),
}

/// A request that waits for an exchange of its key.
pub(super) struct Waiting<S: CasStore, A: Algorithm> {
    pub(super) fleet: Arc<Fleet<S, A>>,
    pub(super) hash: u64,
    pub(super) name: Arc<str>,
    pub(super) cost: u64,
    pub(super) exchanged: oneshot::Receiver<Result<(), StoreError>>,
    pub(super) deadline: Deadline,
}

impl<S: CasStore, A: Algorithm> LeasedFuture<S, A> {
    pub(super) const fn ready(result: Result<Decision, StoreError>) -> Self {
        Self(State::Ready(Some(result)))
    }

    pub(super) fn waiting(waiting: Waiting<S, A>) -> Self {
        Self(State::Waiting(Box::new(waiting)))
    }
}

impl<S: CasStore, A: Algorithm> Waiting<S, A> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Decision, StoreError>> {
        loop {
            match Pin::new(&mut self.exchanged).poll(cx) {
                Poll::Ready(Ok(Ok(()))) => {}
                Poll::Ready(Ok(Err(error))) => return Poll::Ready(Err(error)),
                // The exchange was dropped, with its runtime.
                Poll::Ready(Err(_)) => {
                    let failure = Failure::RuntimeShutDown;
                    return Poll::Ready(Err(failure.in_store(S::NAME)));
                }
                Poll::Pending => {
                    let time_limit = self.fleet.shared().deadline;
                    let expired = self.deadline.poll(cx);
                    let failure = Failure::Deadline(time_limit);
                    return expired.map(|()| Err(failure.in_store(S::NAME)));
                }
            }
            let name = || Arc::clone(&self.name);
            let now = self.fleet.clock.now();
            match decide_slow(&self.fleet, self.hash, name, self.cost) {
                Ok(Slow::Decided(decision)) => {
                    let algorithm = self.fleet.node.algorithm();
                    return Poll::Ready(Ok(with_receipt(&algorithm, decision, now)));
                }
                Ok(Slow::Wait(exchanged)) => self.exchanged = exchanged,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl<S: CasStore, A: Algorithm> Future for LeasedFuture<S, A> {
    type Output = Result<Decision, StoreError>;

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

/// Manual impl: the key is not logged.
impl<S: CasStore, A: Algorithm> fmt::Debug for LeasedFuture<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeasedFuture").finish_non_exhaustive()
    }
}
