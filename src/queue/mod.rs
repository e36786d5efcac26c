//! Queued requests: a line per key, and the seats of the waiting room.
//!
//! The limiter grants each request a slot and limits the length and the wait. The lines keep the
//! requests of each key in order, so that the requests behind one that leaves move up, and release
//! them when their slots have come.

mod entry;
mod guard;
mod line;
mod lines;
mod list;
#[cfg(all(test, tower_throttle_loom))]
mod loom_models;
mod mixed;
mod outcome;
mod seats;
mod shift;
#[cfg(all(test, not(tower_throttle_loom)))]
mod tests;
mod uniform;
mod waiters;

pub(crate) use self::{
    entry::QueuePosition,
    guard::{LineGuard, Lines, PassThroughHasher},
    list::List,
    outcome::{CostOutcome, WaitOutcome},
    seats::{RequestSeat, SeatAcquire, Seats},
};

#[cfg(all(test, tower_throttle_loom))]
pub(crate) use self::loom_models::mock_alarm::{Alarm, now};
#[cfg(not(all(test, tower_throttle_loom)))]
use crate::clock::{Alarm, Clock, MonotonicClock, Tick};

/// The present moment on the clock of the slots.
#[cfg(not(all(test, tower_throttle_loom)))]
pub(crate) fn now() -> Tick {
    MonotonicClock.now()
}

/// Which waiting request goes first, and which one is denied when the line is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Order {
    /// First come, first served. A new request is denied if the line is full.
    #[default]
    Oldest,
    /// Last come, first served. If the line is full, a new request takes the place of the request
    /// that would go last, which is denied. Under overload this serves the clients that have not
    /// given up yet.
    ///
    /// A slot that the limiter granted for one cost is used only by a request of the same cost.
    /// So the newest goes before all waiting requests of its cost, and requests of other costs keep
    /// their places. A permit of a limit on concurrency is for any cost.
    Newest,
}

/// Where in line a request goes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Precedence {
    /// Among the requests of its level.
    pub(crate) order: Order,
    /// Those of a lower level go before it, and it goes before those of a higher one. Below 128.
    pub(crate) level: u8,
}

impl From<Order> for Precedence {
    fn from(order: Order) -> Self {
        Self { order, level: 0 }
    }
}

/// What happens to a request if the waiting room has no free seat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenFull {
    /// The service is not ready until a seat is free: backpressure for its caller.
    #[default]
    Pending,
    /// The service is ready, and a request that would have to wait is denied at once.
    Deny,
}
