//! The requests of one key that wait for a permit.

use std::task::{Poll, Waker};

use super::claim::Claim;
use crate::key::Priority;
use crate::queue::List;

/// Waiters of the highest priority first, and those of one priority in the order of their arrival.
#[derive(Default)]
pub(super) struct Line {
    /// By falling priority. There are at most 100, and they stay as long as the line.
    levels: Vec<(Priority, List<Waiter>)>,
    /// How many were displaced and do not know it yet. Their nodes are still in the lists.
    displaced: usize,
}

/// A request that waits. Its node is linked until it is known how the wait ends.
struct Waiter {
    units: u64,
    /// `None` until the first poll, and once it was woken.
    waker: Option<Waker>,
    end: Option<End>,
}

/// How a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The request has a permit.
    Granted,
    /// A request of higher priority has taken its place in the line.
    Displaced,
}

impl Line {
    /// The number of requests whose wait has not ended.
    pub(super) fn len(&self) -> usize {
        self.levels.iter().map(|(_, waiters)| waiters.len()).sum()
    }

    /// Whether no node is left of requests that were displaced.
    pub(super) const fn is_tidy(&self) -> bool {
        self.displaced == 0
    }

    /// Whether a request of `priority` has to wait because others go before it.
    pub(super) fn is_ahead_of(&self, priority: Priority) -> bool {
        let ahead = self.levels.iter().take_while(|level| level.0 >= priority);
        ahead.into_iter().any(|(_, waiters)| waiters.len() > 0)
    }

    /// Adds a request behind all of its priority. Returns the number of its node.
    pub(super) fn push(&mut self, claim: Claim) -> u32 {
        let by_priority = |level: &(Priority, _)| claim.priority.cmp(&level.0);
        let level = self.levels.binary_search_by(by_priority);
        let level = level.unwrap_or_else(|at| {
            self.levels.insert(at, (claim.priority, List::default()));
            at
        });
        self.levels[level].1.push_back(Waiter {
            units: claim.units,
            waker: None,
            end: None,
        })
    }

    fn level(&mut self, priority: Priority) -> Option<&mut List<Waiter>> {
        let mut levels = self.levels.iter_mut();
        levels
            .find(|level| level.0 == priority)
            .map(|level| &mut level.1)
    }

    /// The first waiter: its priority and units.
    pub(super) fn first(&mut self) -> Option<(Priority, u64)> {
        self.levels.iter_mut().find_map(|(priority, waiters)| {
            let at = waiters.front()?;
            Some((*priority, waiters.get_mut(at)?.units))
        })
    }

    /// Ends the wait of the first waiter with a permit. Returns the waker to call.
    pub(super) fn grant_first(&mut self) -> Option<Waker> {
        let mut levels = self.levels.iter_mut();
        let (waiters, at) = levels.find_map(|(_, waiters)| {
            let at = waiters.front()?;
            Some((waiters, at))
        })?;
        Self::end(waiters, at, End::Granted)
    }

    /// Ends the wait of the last waiter, which is the newest of the lowest priority, if its priority is
    /// lower than `priority`. Returns whether it did, and the waker to call.
    pub(super) fn displace_last(&mut self, priority: Priority) -> (bool, Option<Waker>) {
        let mut levels = self.levels.iter_mut().rev();
        let last = levels.find_map(|(lowest, waiters)| {
            let at = waiters.back()?;
            Some((*lowest, waiters, at))
        });
        match last {
            Some((lowest, waiters, at)) if lowest < priority => {
                self.displaced += 1;
                (true, Self::end(waiters, at, End::Displaced))
            }
            _ => (false, None),
        }
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
            self.displaced -= usize::from(end == End::Displaced);
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
        self.displaced -= usize::from(waiter.end == Some(End::Displaced));
        Some((waiter.end, waiter.waker))
    }
}
