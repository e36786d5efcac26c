//! What a request has of a rate limit: a wait, or what it has taken.

use super::gate::Ask;
use crate::backend::Op;
use crate::clock::MonotonicSleep;
use crate::decision::Decision;
use crate::queue::Place;
use crate::receipt::Receipt;
use crate::respond::{CostHandle, Settle};

/// What a request has of a rate limit: nothing yet, a place in line, or what it has taken.
#[derive(Debug)]
pub struct RateEntry<F>(pub(super) RateStage<F>);

#[derive(Debug)]
pub(super) enum RateStage<F> {
    /// It has not asked.
    New,
    /// The decision is pending. Boxed, because it would be most of the response future, even if the backend
    /// is never pending.
    Asks(Box<F>, Ask),
    /// In the line of its key.
    InLine(InLine),
    /// The backend has booked its turn. Boxed, as few backends do.
    Booked(Box<Booked>),
    Has(Ticket),
    /// Its cost may be said while it is served.
    Shares(CostHandle),
    /// It has nothing that is needed.
    Nothing,
}

impl<F> RateStage<F> {
    pub(super) const fn ticket(&self) -> Option<Ticket> {
        match self {
            Self::Has(ticket) => Some(*ticket),
            _ => None,
        }
    }
}

/// Manual impl: derive would require `F: Default`.
impl<F> Default for RateEntry<F> {
    #[inline]
    fn default() -> Self {
        Self(RateStage::New)
    }
}

#[derive(Debug)]
pub(super) struct InLine {
    pub(super) place: Place,
    /// As it was expected when the request joined, in nanoseconds.
    pub(super) wait: u64,
    pub(super) cost: u64,
    pub(super) keep: bool,
}

#[derive(Debug)]
pub(super) struct Booked {
    pub(super) until: MonotonicSleep,
    /// If its figures are read.
    pub(super) decision: Option<Decision>,
    pub(super) ticket: Ticket,
    pub(super) keep: bool,
}

/// What an admitted request has taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    pub(super) cost: u64,
    /// `None` if nothing was taken: the request passes only in shadow mode.
    pub(super) receipt: Option<Receipt>,
}

impl Ticket {
    /// What settles the cost. Nothing was taken from a denied request.
    pub(super) fn settled_by(self, settle: Settle) -> Option<Op> {
        let (cost, receipt) = (self.cost, self.receipt?);
        let op = match settle {
            Settle::Keep => return None,
            Settle::Refund => Op::Refund(cost, receipt),
            Settle::Forgive => Op::Forgive(cost, receipt),
            Settle::Charge(units) if units < cost => Op::Refund(cost - units, receipt),
            Settle::Charge(units) => Op::Charge(units - cost),
        };
        let is_nothing = matches!(op, Op::Refund(0, _) | Op::Forgive(0, _) | Op::Charge(0));
        (!is_nothing).then_some(op)
    }
}
