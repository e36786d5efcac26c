//! The operations of the script.

use crate::backend::Op;
use crate::clock::nanos;
use crate::quota::Quota;
use crate::receipt::Receipt;
use crate::store::apply::longest_wait;

/// An operation on the state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Take(u64),
    /// A cost, and the longest wait in nanoseconds.
    Reserve(u64, u64),
    Peek(u64),
    /// A cost, and when it was taken, in microseconds of the server.
    Refund(u64, u64),
    /// A cost, and its turn, if that has not come.
    Cancel(u64, u64),
    /// The same for a request that succeeded.
    Forgive(u64, u64),
    Charge(u64),
    Reset,
}

impl Call {
    /// The operation on a key with these quotas.
    pub(super) fn new(op: Op, quotas: impl FnOnce() -> Vec<Quota>) -> Self {
        let micros = |receipt: Receipt| match receipt.moment() {
            u64::MAX => u64::MAX,
            ns => ns / 1_000,
        };
        match op {
            Op::Take(cost) => Self::Take(cost),
            Op::Reserve {
                cost,
                queue,
                max_wait,
            } => Self::Reserve(cost, nanos(longest_wait(&quotas(), queue, max_wait))),
            Op::Peek(cost) => Self::Peek(cost),
            Op::Refund(cost, receipt) => Self::Refund(cost, micros(receipt)),
            Op::Forgive(cost, receipt) => Self::Forgive(cost, micros(receipt)),
            // The turn, which is a whole number of them.
            Op::Cancel(cost, receipt) => Self::Cancel(cost, receipt.moment().div_ceil(1_000)),
            Op::Charge(cost) => Self::Charge(cost),
            // What a script decides has no bans.
            Op::Ban(_) => Self::Peek(0),
            Op::Reset => Self::Reset,
        }
    }

    /// The number of the operation in the script. An operation of no cost is a peek.
    pub(super) const fn number(self) -> i64 {
        match self {
            Self::Reset => 5,
            Self::Peek(_) => 2,
            _ if self.cost() == 0 => 2,
            Self::Take(_) | Self::Reserve(..) => 1,
            Self::Refund(..) | Self::Cancel(..) | Self::Forgive(..) => 3,
            Self::Charge(_) => 4,
        }
    }

    /// When the cost of a refund was taken, if this is one.
    pub(super) const fn taken_at(self) -> Option<u64> {
        match self {
            Self::Refund(_, taken_at) | Self::Cancel(_, taken_at) | Self::Forgive(_, taken_at) => {
                Some(taken_at)
            }
            _ => None,
        }
    }

    /// Whether the operation takes its cost if the limit admits it.
    pub(super) const fn takes(self) -> bool {
        matches!(self, Self::Take(1..) | Self::Reserve(1.., _))
    }

    /// Whether the operation asks if there is room for its cost.
    pub(super) const fn asks(self) -> bool {
        matches!(self, Self::Take(_) | Self::Reserve(..) | Self::Peek(_))
    }

    pub(super) const fn cost(self) -> u64 {
        match self {
            Self::Take(cost)
            | Self::Reserve(cost, _)
            | Self::Peek(cost)
            | Self::Refund(cost, _)
            | Self::Cancel(cost, _)
            | Self::Forgive(cost, _)
            | Self::Charge(cost) => cost,
            Self::Reset => 0,
        }
    }
}
