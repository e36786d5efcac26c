//! The future of a decision.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use super::node::{Exchanged, Node};
use crate::algorithm::Algorithm;
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::decision::Decision;
use crate::error::StoreError;
use crate::store::{
    cas::{CasStore, error::Failure},
    deadline::Deadline,
};

/// The decision of a limiter of a fleet: known at once, or after the next exchange of the key.
///
/// # Cancel safety
/// If it is dropped while it is pending, nothing is taken.
#[must_use = "futures do nothing unless polled"]
pub struct FleetFuture<S: CasStore, A: Algorithm>(State<S, A>);

enum State<S: CasStore, A: Algorithm> {
    /// `None` after it was returned.
    Ready(Option<Result<Decision, StoreError>>),
    Waiting(Box<Waiting<S, A>>),
}

/// A request that waits for an exchange of its key.
struct Waiting<S: CasStore, A: Algorithm> {
    node: Arc<Node<S, A>>,
    hash: u64,
    name: Arc<str>,
    cost: u64,
    exchanged: Exchanged,
    deadline: Deadline,
}

impl<S: CasStore, A: Algorithm> FleetFuture<S, A> {
    #[inline]
    pub(super) const fn ready(result: Result<Decision, StoreError>) -> Self {
        Self(State::Ready(Some(result)))
    }

    pub(super) fn decide(
        node: &Arc<Node<S, A>>,
        name_of: impl Fn() -> Arc<str>,
        (hash, cost): (u64, u64),
        now: Tick,
    ) -> Self {
        let mut made = None;
        let name = || Arc::clone(made.insert(name_of()));
        let exchanged = match node.decide(hash, name, (now, cost), false) {
            Ok(Ok(decision)) => return Self::ready(Ok(decision)),
            Ok(Err(exchanged)) => exchanged,
            Err(error) => return Self::ready(Err(error)),
        };
        Self(State::Waiting(Box::new(Waiting {
            node: Arc::clone(node),
            hash,
            name: made.unwrap_or_else(name_of),
            cost,
            exchanged,
            deadline: Deadline::new(now.plus(node.wait_limit)),
        })))
    }
}

impl<S: CasStore, A: Algorithm> Waiting<S, A> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Decision, StoreError>> {
        loop {
            match Pin::new(&mut self.exchanged).poll(cx) {
                Poll::Ready(Ok(Ok(()))) => {}
                Poll::Ready(Ok(Err(error))) => return Poll::Ready(Err(error)),
                // The key was forgotten, or the runtime of the task was shut down.
                Poll::Ready(Err(_)) => {
                    return Poll::Ready(Err(Failure::RuntimeShutDown.in_store(S::NAME)));
                }
                Poll::Pending => {
                    let failure = Failure::Deadline(self.node.wait_limit);
                    let expired = self.deadline.poll(cx);
                    return expired.map(|()| Err(failure.in_store(S::NAME)));
                }
            }
            let name = || Arc::clone(&self.name);
            let now = MonotonicClock.now();
            match self.node.decide(self.hash, name, (now, self.cost), true) {
                Ok(Ok(decision)) => return Poll::Ready(Ok(decision)),
                Ok(Err(exchanged)) => self.exchanged = exchanged,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl<S: CasStore, A: Algorithm> Future for FleetFuture<S, A> {
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
impl<S: CasStore, A: Algorithm> fmt::Debug for FleetFuture<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetFuture").finish_non_exhaustive()
    }
}
