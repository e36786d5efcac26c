//! Requests that wait: a line per key, and the seats of the waiting room.

mod line;
mod lines;
#[cfg(all(test, tower_throttle_loom))]
mod loom_models;
mod seats;

#[cfg(all(test, tower_throttle_loom))]
pub(crate) use self::loom_models::mock_alarm::{Alarm, now};
pub(crate) use self::{
    line::{Line, Place},
    lines::{Joined, LineLimit, Lines, TOLD},
    seats::{RequestSeat, SeatAcquire, Seats},
};
#[cfg(not(all(test, tower_throttle_loom)))]
use crate::clock::{Alarm, Clock, MonotonicClock, Tick};

/// The present moment.
#[cfg(not(all(test, tower_throttle_loom)))]
pub(crate) fn now() -> Tick {
    MonotonicClock.now()
}

/// Which waiting request goes first, and which one is denied when the line is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    /// First come, first served. A new request is denied if the line is full.
    #[default]
    Oldest,
    /// Last come, first served. If the line is full, a new request takes the place of the request
    /// that would go last, which is denied. Under overload this serves the clients that have not
    /// given up yet.
    Newest,
}

impl Order {
    /// Whether a new request goes before one that waits: by priority, and within one in this order.
    fn goes_before(self, new: u8, waiting: u8) -> bool {
        new > waiting || (new == waiting && self == Self::Newest)
    }
}
