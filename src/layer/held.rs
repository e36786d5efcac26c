//! What a request has of its gate.

use std::{
    mem,
    task::{Context, Poll, ready},
};

use super::gate::{Gate, Has, Passed};
use crate::decision::CompactDecision;
use crate::error::RateLimited;
use crate::queue::RequestSeat;
use crate::respond::CostHandle;

/// A wait, or a ticket. Dropped while it waits, it gives back what it has taken.
pub(super) struct Held<K, G: Gate<K>> {
    pub(super) gate: G,
    pub(super) key: K,
    has: Has<Waiting<G::Wait>, G::Ticket>,
}

/// What a request has while it waits.
pub(super) struct Waiting<W> {
    pub(super) wait: W,
    pub(super) seat: RequestSeat,
}

impl<W, T> Has<W, T> {
    const NOTHING: Self = Self::Passed(Passed::at_once(None));
}

impl<K, G: Gate<K>> Held<K, G> {
    pub(super) const fn waiting(gate: G, key: K, wait: Waiting<G::Wait>) -> Self {
        let has = Has::Wait(wait);
        Self { gate, key, has }
    }

    #[inline]
    pub(super) const fn passed(
        gate: G,
        key: K,
        decision: Option<CompactDecision>,
        ticket: G::Ticket,
    ) -> Self {
        let ticket = Some(ticket);
        let has = Has::Passed(Passed {
            ticket,
            decision,
            waited: false,
            decided: true,
        });
        Self { gate, key, has }
    }

    pub(super) const fn is_waiting(&self) -> bool {
        matches!(self.has, Has::Wait(_))
    }

    /// Whether the request may go on because a limit has said so.
    pub(super) const fn was_decided(&self) -> bool {
        match &self.has {
            Has::Passed(passed) => passed.decided,
            Has::Wait(_) => false,
        }
    }

    /// Ready when the request may go on to the service, from then on always.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RateLimited>> {
        if let Has::Wait(Waiting { wait, seat }) = &mut self.has {
            let ended = ready!(self.gate.poll(&self.key, wait, seat, cx));
            // The request has no place in line any more.
            self.has = Has::NOTHING;
            self.has = Has::Passed(ended?);
        }
        Poll::Ready(Ok(()))
    }

    pub(super) const fn decision(&self) -> Option<CompactDecision> {
        match &self.has {
            Has::Passed(passed) => passed.decision,
            Has::Wait(_) => None,
        }
    }

    pub(super) fn forget_decision(&mut self) {
        if let Has::Passed(passed) = &mut self.has {
            passed.decision = None;
        }
    }

    /// Says what the request has cost, once it may go on.
    pub(super) fn cost_handle(&mut self) -> Option<CostHandle> {
        match &mut self.has {
            Has::Passed(passed) if G::GIVES_COST_HANDLES => {
                let ticket = passed.ticket.as_mut()?;
                self.gate.cost_handle(&self.key, ticket)
            }
            _ => None,
        }
    }

    #[inline]
    pub(super) fn take_ticket(&mut self) -> Option<G::Ticket> {
        match &mut self.has {
            Has::Passed(passed) => passed.ticket.take(),
            Has::Wait(_) => None,
        }
    }

    #[inline]
    pub(super) fn put_ticket(&mut self, ticket: Option<G::Ticket>) {
        if let Has::Passed(passed) = &mut self.has {
            passed.ticket = ticket;
        }
    }
}

impl<K, G: Gate<K>> Drop for Held<K, G> {
    fn drop(&mut self) {
        if self.is_waiting() {
            if let Has::Wait(waiting) = mem::replace(&mut self.has, Has::NOTHING) {
                self.gate.leave(&self.key, Has::Wait(waiting.wait));
            }
        }
    }
}
