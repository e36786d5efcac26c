//! The requests of one key that wait for a permit.

use std::task::Waker;

use crate::queue;

/// A line in which a request is granted its permit by who releases one.
pub(super) type PermitLine = queue::Line<Needs, End>;

/// What is kept of a request that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// The permits that it has to leave free.
    pub(super) reserved: u32,
    /// It is known that there was no room for it. Always, in one process.
    pub(super) queued: bool,
}

/// How a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The request has a permit. `queued` if there was no room at first.
    Granted { queued: bool },
    /// A request that goes before it has taken its place in the line, or the line is full.
    Displaced,
    /// The store of the permits has failed.
    #[cfg_attr(
        not(feature = "cas"),
        allow(dead_code, reason = "permits of a fleet use it")
    )]
    Failed,
}

impl End {
    pub(super) const fn is_without_permit(self) -> bool {
        matches!(self, Self::Displaced | Self::Failed)
    }
}

impl PermitLine {
    /// The first waiter: its units, and those that it has to leave free.
    pub(super) fn first_needs(&mut self) -> Option<(u64, u32)> {
        let (_, waiter) = self.first()?;
        Some((waiter.units, waiter.own.reserved))
    }

    /// Ends the wait of the first waiter with a permit. Returns the waker to call.
    pub(super) fn grant_first(&mut self) -> Option<Waker> {
        let (first, waiter) = self.first()?;
        let queued = waiter.own.queued;
        self.end(first, End::Granted { queued })
    }

    fn end_last(&mut self, end: End) -> Option<Waker> {
        let last = self.last()?;
        self.end(last, end)
    }
}

/// What the permits of a fleet need.
#[cfg_attr(
    not(feature = "cas"),
    allow(dead_code, reason = "permits of a fleet use it")
)]
impl PermitLine {
    /// How many of the first waiters can go on together while `taken` units are in flight, which is then how many are
    /// with them. `part` says how many may be for a waiter that leaves so many free.
    pub(super) fn fitting(&mut self, taken: &mut u64, part: impl Fn(u32) -> u64) -> usize {
        let (mut fitting, mut is_full) = (0, false);
        self.for_each(|waiter| {
            let after = taken.saturating_add(waiter.units);
            is_full |= after > part(waiter.own.reserved);
            if !is_full {
                (fitting, *taken) = (fitting + 1, after);
            }
        });
        fitting
    }

    /// The units that all waiters want.
    pub(super) fn units(&mut self) -> u64 {
        let mut units = 0_u64;
        self.for_each(|waiter| units = units.saturating_add(waiter.units));
        units
    }

    /// Of the waiters behind the first `fitting` ones, `most` stay. The others are displaced, the last ones
    /// first. Returns the wakers to call.
    pub(super) fn refuse(&mut self, fitting: usize, most: u32) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while self.len() > fitting.saturating_add(most as usize) {
            wakers.extend(self.end_last(End::Displaced));
        }
        let mut passed = 0;
        self.for_each(|waiter| {
            waiter.own.queued |= passed >= fitting;
            passed += 1;
        });
        wakers
    }

    /// Ends all waits without a permit. Returns the wakers to call.
    pub(super) fn fail_all(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while self.len() > 0 {
            wakers.extend(self.end_last(End::Failed));
        }
        wakers
    }
}

#[cfg(all(test, not(tower_throttle_loom)))]
mod tests {
    use std::task::Poll;

    use super::*;
    use crate::key::Priority;
    use crate::queue::{Order, Precedence};

    #[test]
    fn only_requests_without_room_are_known_to_wait() {
        let new = Precedence {
            priority: Priority::HIGH,
            order: Order::Oldest,
        };
        let needs = Needs {
            reserved: 0,
            queued: false,
        };
        let mut line = PermitLine::default();
        let waiters = [(); 4].map(|()| line.push(new, 1, needs));
        // None was polled, so none is woken.
        assert!(line.refuse(2, 1).is_empty());
        let ends = waiters.map(|at| {
            drop(line.grant_first());
            line.poll(at, Waker::noop()).0
        });
        let granted = |queued| Poll::Ready(End::Granted { queued });
        assert_eq!(
            ends,
            [
                granted(false),
                granted(false),
                granted(true),
                Poll::Ready(End::Displaced)
            ]
        );
    }
}
