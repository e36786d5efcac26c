//! The requests of one key that wait for a permit.

use std::task::{Poll, Waker};

use super::request::PermitRequest;
use crate::key::Priority;
use crate::queue::{List, Order};

/// Waiters of the highest priority first, and those of one priority in the order of their arrival, or
/// the newest first.
#[derive(Default)]
pub(super) struct Line {
    /// By falling priority. There are at most 100, and they stay as long as the line.
    levels: Vec<(Priority, List<Waiter>)>,
    /// How many were displaced, or failed, and do not know it yet. Their nodes are still in the lists.
    displaced: usize,
}

/// A request that waits. Its node is linked until it is known how the wait ends.
struct Waiter {
    units: u64,
    reserved: u32,
    /// `None` until the first poll, and once it was woken.
    waker: Option<Waker>,
    end: Option<End>,
    /// It is known that there was no room for it. Always, in one process.
    queued: bool,
}

/// How a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
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

/// Whether a new request goes before those of `level` that wait.
fn goes_before(request: PermitRequest, level: Priority) -> bool {
    request.priority > level || (request.priority == level && request.order == Order::Newest)
}

impl Line {
    /// The number of requests whose wait has not ended.
    pub(super) fn len(&self) -> usize {
        self.levels.iter().map(|(_, waiters)| waiters.len()).sum()
    }

    /// Whether no node is left of requests that were displaced or failed.
    pub(super) const fn is_tidy(&self) -> bool {
        self.displaced == 0
    }

    /// Whether a request has to wait because others go before it.
    pub(super) fn is_ahead_of(&self, request: PermitRequest) -> bool {
        let is_ahead = |level: Priority| !goes_before(request, level);
        let ahead = self.levels.iter().take_while(|level| is_ahead(level.0));
        ahead.into_iter().any(|(_, waiters)| waiters.len() > 0)
    }

    /// Adds a request among those of its priority. `queued` if there is no room for it. Returns the number of its
    /// node.
    pub(super) fn push(&mut self, request: PermitRequest, queued: bool) -> u32 {
        let by_priority = |level: &(Priority, _)| request.priority.cmp(&level.0);
        let level = self.levels.binary_search_by(by_priority);
        let level = level.unwrap_or_else(|at| {
            self.levels.insert(at, (request.priority, List::default()));
            at
        });
        let waiter = Waiter {
            units: request.units,
            reserved: request.reserved,
            waker: None,
            end: None,
            queued,
        };
        match request.order {
            Order::Newest => self.levels[level].1.push_front(waiter),
            _ => self.levels[level].1.push_back(waiter),
        }
    }

    fn level(&mut self, priority: Priority) -> Option<&mut List<Waiter>> {
        let mut levels = self.levels.iter_mut();
        levels
            .find(|level| level.0 == priority)
            .map(|level| &mut level.1)
    }

    /// The first waiter: its units, and those that it has to leave free.
    pub(super) fn first(&mut self) -> Option<(u64, u32)> {
        let (at, waiters) = self.front()?;
        let waiter = waiters.get_mut(at)?;
        Some((waiter.units, waiter.reserved))
    }

    /// Ends the wait of the first waiter with a permit. Returns the waker to call.
    pub(super) fn grant_first(&mut self) -> Option<Waker> {
        let (at, waiters) = self.front()?;
        let queued = waiters.get_mut(at)?.queued;
        Self::end(waiters, at, End::Granted { queued })
    }

    /// Ends the wait of the last waiter, one of the lowest priority, if `request` goes before
    /// it. Returns whether it did, and the waker to call.
    pub(super) fn displace_last(&mut self, request: PermitRequest) -> (bool, Option<Waker>) {
        match self.back() {
            Some((lowest, ..)) if goes_before(request, lowest) => {
                (true, self.end_last(End::Displaced))
            }
            _ => (false, None),
        }
    }

    /// The first waiter, in its list.
    fn front(&mut self) -> Option<(u32, &mut List<Waiter>)> {
        let mut levels = self.levels.iter_mut();
        levels.find_map(|(_, waiters)| Some((waiters.front()?, waiters)))
    }

    /// The last waiter, in its list.
    fn back(&mut self) -> Option<(Priority, u32, &mut List<Waiter>)> {
        let mut levels = self.levels.iter_mut().rev();
        levels.find_map(|(priority, waiters)| Some((*priority, waiters.back()?, waiters)))
    }

    fn end_last(&mut self, end: End) -> Option<Waker> {
        let (_, at, waiters) = self.back()?;
        let waker = Self::end(waiters, at, end);
        self.displaced += 1;
        waker
    }

    fn end(waiters: &mut List<Waiter>, at: u32, end: End) -> Option<Waker> {
        let waiter = waiters.get_mut(at)?;
        waiter.end = Some(end);
        let waker = waiter.waker.take();
        waiters.unlink(at);
        waker
    }

    /// Ready once the wait has ended; the node is free then. Otherwise keeps the waker, and returns one
    /// to drop.
    pub(super) fn poll(
        &mut self,
        priority: Priority,
        at: u32,
        waker: &Waker,
    ) -> (Poll<End>, Option<Waker>) {
        let Some(waiters) = self.level(priority) else {
            return (Poll::Pending, None);
        };
        let Some(waiter) = waiters.get_mut(at) else {
            return (Poll::Pending, None);
        };
        if let Some(end) = waiter.end {
            let stale = waiters.take(at).and_then(|own| own.waker);
            self.displaced -= usize::from(end.is_without_permit());
            return (Poll::Ready(end), stale);
        }
        let is_known = waiter.waker.as_ref();
        if is_known.is_some_and(|old| old.will_wake(waker)) {
            return (Poll::Pending, None);
        }
        (Poll::Pending, waiter.waker.replace(waker.clone()))
    }

    /// Removes a waiter. Returns how its wait had ended, and its waker to drop; `None` if there is no
    /// such waiter.
    pub(super) fn remove(
        &mut self,
        priority: Priority,
        at: u32,
    ) -> Option<(Option<End>, Option<Waker>)> {
        let waiter = self.level(priority)?.take(at)?;
        self.displaced -= usize::from(waiter.end.is_some_and(End::is_without_permit));
        Some((waiter.end, waiter.waker))
    }
}

/// What the permits of a fleet need.
#[cfg_attr(
    not(feature = "cas"),
    allow(dead_code, reason = "permits of a fleet use it")
)]
impl Line {
    /// How many of the first waiters can go on together while `taken` units are in flight, which is then how many are
    /// with them. `part` says how many may be for a waiter that leaves so many free.
    pub(super) fn fitting(&mut self, taken: &mut u64, part: impl Fn(u32) -> u64) -> usize {
        let (mut fitting, mut is_full) = (0, false);
        self.for_each(|waiter| {
            let after = taken.saturating_add(waiter.units);
            is_full |= after > part(waiter.reserved);
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
            waiter.queued |= passed >= fitting;
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

    /// Calls `visit` with each waiter, in their order.
    fn for_each(&mut self, mut visit: impl FnMut(&mut Waiter)) {
        for (_, waiters) in &mut self.levels {
            let mut at = waiters.front();
            while let Some(waiter) = at.and_then(|at| waiters.get_mut(at)) {
                visit(waiter);
                at = at.and_then(|at| waiters.after(at));
            }
        }
    }
}

#[cfg(all(test, not(tower_throttle_loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_requests_without_room_are_known_to_wait() {
        let request = PermitRequest {
            id: 0,
            units: 1,
            priority: Priority::HIGH,
            reserved: 0,
            order: Order::Oldest,
        };
        let mut line = Line::default();
        let waiters = [(); 4].map(|()| line.push(request, false));
        // None was polled, so none is woken.
        assert!(line.refuse(2, 1).is_empty());
        let ends = waiters.map(|at| {
            drop(line.grant_first());
            line.poll(Priority::HIGH, at, Waker::noop()).0
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
