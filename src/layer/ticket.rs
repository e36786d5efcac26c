//! What an admitted request has taken of a rate limit.

use crate::backend::Op;
use crate::receipt::Receipt;
use crate::respond::Settle;

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
