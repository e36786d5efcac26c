//! When: the lines in which requests wait for their turn, and the seats of the waiting room.
//!
//! The limiter says at which moment a request may go, and keeps the length of the line and the
//! longest wait. Here the requests of one key stand in order, so that those behind move up when one
//! leaves, and are called when their moments have come.

mod chunked_deque;
mod line;
mod lines;
mod list;
#[cfg(all(test, tower_throttle_loom))]
mod loom_models;
mod prefetch;
mod seats;
mod slots;
mod timer;
mod waiters;
mod wake;

pub(crate) use self::{
    line::{CostOutcome, WaitOutcome},
    lines::{LineGuard, Lines, QueuePosition},
    seats::{RequestSeat, SeatAcquire, Seats},
    timer::LineTimer,
};

/// Who goes first of those who wait, and who has to leave when the line is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Order {
    /// First come, first served. A newcomer who finds the line full is denied.
    #[default]
    Oldest,
    /// Last come, first served. A newcomer who finds the line full takes the place of the oldest,
    /// who is denied: under overload those get through whose clients have not given up yet.
    Newest,
}

/// What becomes of a request for which the waiting room has no seat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenFull {
    /// The service is not ready until there is one, so that whoever calls it feels the pressure.
    #[default]
    Pending,
    /// The service is ready all the same; a request that would have to wait is denied at once.
    Deny,
}
