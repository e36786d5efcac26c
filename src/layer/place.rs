//! What a request has taken, so that it can be given back.

use std::{
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use super::state::State;
use crate::limiter::KeyedLimiter;
use crate::limiter::Op;
use crate::respond::Settle;

/// Polls once, on the spot. A future that is not ready is polled again by whoever waits for it.
#[inline]
pub(super) fn poll_now<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// The cost that a request has taken from its key.
pub(super) struct Place<K, L: KeyedLimiter<K>> {
    state: Arc<State<L>>,
    key: K,
    cost: u64,
    /// Whether the cost is given back on drop: while a request waits, it has had nothing for it.
    waiting: bool,
}

impl<K, L: KeyedLimiter<K>> Place<K, L> {
    pub(super) fn new(state: Arc<State<L>>, key: K, cost: u64) -> Self {
        Self {
            state,
            key,
            cost,
            waiting: false,
        }
    }

    pub(super) fn state(&self) -> &Arc<State<L>> {
        &self.state
    }

    /// From now until [`leave_line`](Self::leave_line) dropping it gives the cost back.
    pub(super) fn wait_in_line(&mut self) {
        self.waiting = true;
    }

    pub(super) fn leave_line(&mut self) {
        self.waiting = false;
    }

    /// Starts to give back or to take the difference; the future tells when that is done.
    pub(super) fn settle(&self, settle: Settle) -> Option<L::Future> {
        let op = self.difference(settle)?;
        Some(self.state.limiter.apply(&self.key, op))
    }

    fn difference(&self, settle: Settle) -> Option<Op> {
        let op = match settle {
            Settle::Keep => return None,
            Settle::Refund => Op::Refund(self.cost),
            Settle::Charge(cost) if cost < self.cost => Op::Refund(self.cost - cost),
            Settle::Charge(cost) => Op::Absorb(cost - self.cost),
        };
        match op {
            Op::Refund(0) | Op::Absorb(0) => None,
            op => Some(op),
        }
    }
}

impl<K, L: KeyedLimiter<K>> Drop for Place<K, L> {
    fn drop(&mut self) {
        if mem::take(&mut self.waiting) {
            if let Some(refund) = self.difference(Settle::Refund) {
                self.state.limiter.detach(&self.key, refund);
            }
        }
    }
}
