//! The operations of a script.

use crate::backend::Op;
use crate::clock::nanos;

/// An operation on the state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(unnameable_types, reason = "an argument of the sealed trait")]
pub enum Call {
    Take(u64),
    /// A cost, and the longest wait in nanoseconds.
    Reserve(u64, u64),
    Peek(u64),
    /// One of several limits alone.
    PeekOf(u64, usize),
    /// A cost, and when it was taken, in microseconds of the server.
    Refund(u64, u64),
    /// The same for a request whose turn has not come.
    Cancel(u64, u64),
    /// The same for a request that succeeded.
    Forgive(u64, u64),
    Charge(u64),
    /// For how many microseconds.
    Ban(u64),
    Reset,
}

impl From<Op> for Call {
    fn from(op: Op) -> Self {
        match op {
            Op::Take(cost) | Op::Borrow(cost) => Self::Take(cost),
            Op::Peek(cost) => Self::Peek(cost),
            Op::PeekOf(cost, part) => Self::PeekOf(cost, part),
            Op::Refund(cost, receipt) => Self::Refund(cost, receipt.moment()),
            Op::Forgive(cost, receipt) => Self::Forgive(cost, receipt.moment()),
            Op::Cancel(cost, receipt) => Self::Cancel(cost, receipt.moment()),
            Op::Charge(cost) => Self::Charge(cost),
            Op::Ban(length) => Self::Ban(nanos(length).div_ceil(1_000)),
            Op::Reset => Self::Reset,
        }
    }
}

impl Call {
    /// The number of the operation in a script. An operation of no cost is a peek.
    pub(super) const fn opcode(self) -> u64 {
        match self {
            Self::Take(0)
            | Self::Reserve(0, _)
            | Self::Refund(0, _)
            | Self::Cancel(0, _)
            | Self::Forgive(0, _)
            | Self::Charge(0)
            | Self::Peek(_)
            | Self::PeekOf(..) => 2,
            Self::Take(_) | Self::Reserve(..) => 1,
            Self::Refund(..) | Self::Cancel(..) | Self::Forgive(..) => 3,
            Self::Charge(_) => 4,
            Self::Reset => 5,
            Self::Ban(_) => 6,
        }
    }

    /// When the cost of a refund was taken, if this is one. A limit for which requests queue gives back
    /// all of the cost of a request whose turn has not come.
    pub(super) const fn taken_at(self, is_line: bool) -> Option<u64> {
        match self {
            Self::Cancel(1.., _) if is_line => Some(u64::MAX),
            Self::Refund(1.., taken_at)
            | Self::Cancel(1.., taken_at)
            | Self::Forgive(1.., taken_at) => Some(taken_at),
            _ => None,
        }
    }

    /// Whether the operation takes its cost if the limit admits it.
    pub(super) const fn takes(self) -> bool {
        self.opcode() == 1
    }

    pub(super) const fn cost(self) -> u64 {
        match self {
            Self::Take(cost)
            | Self::Reserve(cost, _)
            | Self::Peek(cost)
            | Self::PeekOf(cost, _)
            | Self::Refund(cost, _)
            | Self::Cancel(cost, _)
            | Self::Forgive(cost, _)
            | Self::Charge(cost) => cost,
            Self::Ban(_) | Self::Reset => 0,
        }
    }
}
