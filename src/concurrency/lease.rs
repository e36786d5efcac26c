//! The permits of a key that this machine holds, of those that a fleet has together.

use std::task::Waker;

use super::request::Reserve;
use crate::clock::{Clock, MonotonicClock, Tick};

/// What the store has granted to this machine.
#[cfg_attr(
    not(feature = "cas"),
    allow(dead_code, reason = "permits of a fleet use it")
)]
pub(super) struct Lease {
    /// How many units may be in flight here. The store knows of as many at least.
    pub(super) granted: u64,
    /// From then on the store may give them to other machines.
    pub(super) valid_until: Tick,
    /// How many units the other machines hold, as far as is known.
    pub(super) others: u64,
    /// How many requests may wait.
    pub(super) queue: u32,
    pub(super) reserve: Reserve,
    /// Wakes the task that keeps the lease.
    pub(super) keeper: Waker,
}

impl Lease {
    /// How many units may be in flight here if `part` may be in the fleet. A machine that was suspended finds
    /// here that its lease is over, before its timers do.
    pub(super) fn part(&self, part: u64) -> u64 {
        if MonotonicClock.now() >= self.valid_until {
            return 0;
        }
        part.saturating_sub(self.others).min(self.granted)
    }
}
