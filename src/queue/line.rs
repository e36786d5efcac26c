//! The requests that wait for one key, in their order. They hold nothing of the limit.

use std::{
    mem,
    task::{Poll, Waker},
};

use super::{List, Precedence};
use crate::key::Priority;

/// Waiters of the highest priority first, and those of one priority in the order of their arrival, or
/// the newest first. `W` is what the owner keeps of a waiter, `E` how its wait ends.
#[derive(Debug)]
pub(crate) struct Line<W, E> {
    /// By falling priority. There are at most 100, and they stay as long as the line.
    levels: Vec<Level<W, E>>,
    /// How many do not know yet that their wait has ended. Their nodes are still in the lists.
    ended: usize,
}

#[derive(Debug)]
struct Level<W, E> {
    priority: Priority,
    /// Of all its waiters.
    units: u128,
    waiters: List<Waiter<W, E>>,
}

/// A request that waits. Its node is linked until it is known how the wait ends.
#[derive(Debug)]
pub(crate) struct Waiter<W, E> {
    pub(crate) units: u64,
    pub(crate) own: W,
    wait: Wait<E>,
}

#[derive(Debug)]
enum Wait<E> {
    /// `None` until the first poll.
    Goes(Option<Waker>),
    Ended(E),
}

/// Where a request waits, until it has learned how its wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    priority: Priority,
    at: u32,
}

impl<W, E> Default for Line<W, E> {
    fn default() -> Self {
        let (levels, ended) = (Vec::new(), 0);
        Self { levels, ended }
    }
}

impl<W, E> Line<W, E> {
    /// The number of requests whose wait has not ended.
    pub(crate) fn len(&self) -> usize {
        self.levels.iter().map(|level| level.waiters.len()).sum()
    }

    /// Whether it can be dropped: none waits, and all have learned how their wait has ended.
    pub(crate) fn is_unused(&self) -> bool {
        self.ended == 0 && self.len() == 0
    }

    /// The units of those that go before a new request.
    pub(crate) fn units_before(&self, new: Precedence) -> u64 {
        let levels = self.levels.iter();
        let before = levels.take_while(|level| !new.goes_before(level.priority));
        let units: u128 = before.map(|level| level.units).sum();
        u64::try_from(units).unwrap_or(u64::MAX)
    }

    /// The first waiter.
    pub(crate) fn first(&mut self) -> Option<(Place, &mut Waiter<W, E>)> {
        let mut levels = self.levels.iter_mut();
        let (level, at) = levels.find_map(|level| {
            let at = level.waiters.front()?;
            Some((level, at))
        })?;
        let priority = level.priority;
        Some((Place { priority, at }, level.waiters.get_mut(at)?))
    }

    /// The last waiter: the one that loses its place if there is no room for all.
    pub(crate) fn last(&self) -> Option<Place> {
        self.levels.iter().rev().find_map(|level| {
            let (priority, at) = (level.priority, level.waiters.back()?);
            Some(Place { priority, at })
        })
    }

    /// The last waiter, if a new request goes before it.
    pub(crate) fn last_behind(&self, new: Precedence) -> Option<Place> {
        self.last().filter(|last| new.goes_before(last.priority))
    }

    /// Adds a request among those of its priority.
    pub(crate) fn push(&mut self, new: Precedence, units: u64, own: W) -> Place {
        let Precedence { priority, .. } = new;
        let by_priority = |level: &Level<W, E>| priority.cmp(&level.priority);
        let at = self.levels.binary_search_by(by_priority);
        let at = at.unwrap_or_else(|at| {
            let waiters = List::default();
            self.levels.insert(
                at,
                Level {
                    priority,
                    units: 0,
                    waiters,
                },
            );
            at
        });
        let level = &mut self.levels[at];
        level.units += u128::from(units);
        let wait = Wait::Goes(None);
        let waiter = Waiter { units, own, wait };
        let at = if new.is_newest() {
            level.waiters.push_front(waiter)
        } else {
            level.waiters.push_back(waiter)
        };
        Place { priority, at }
    }

    fn level(&mut self, place: Place) -> Option<&mut Level<W, E>> {
        let mut levels = self.levels.iter_mut();
        levels.find(|level| level.priority == place.priority)
    }

    /// What the owner keeps of a waiter.
    pub(crate) fn own(&mut self, place: Place) -> Option<W>
    where
        W: Copy,
    {
        let waiter = self.level(place)?.waiters.get_mut(place.at)?;
        Some(waiter.own)
    }

    /// Ends a wait. Returns the waker to call.
    pub(crate) fn end(&mut self, place: Place, end: E) -> Option<Waker> {
        let level = self.level(place)?;
        let waiter = level.waiters.get_mut(place.at)?;
        let Wait::Goes(waker) = mem::replace(&mut waiter.wait, Wait::Ended(end)) else {
            return None;
        };
        level.units -= u128::from(waiter.units);
        level.waiters.unlink(place.at);
        self.ended += 1;
        waker
    }

    /// Ready once the wait has ended; the place is free then. Otherwise keeps the waker, and returns one
    /// to drop without a lock.
    pub(crate) fn poll(&mut self, place: Place, waker: &Waker) -> (Poll<E>, Option<Waker>) {
        let waiters = self.level(place).map(|level| &mut level.waiters);
        let Some(waiter) = waiters.and_then(|waiters| waiters.get_mut(place.at)) else {
            return (Poll::Pending, None);
        };
        match &mut waiter.wait {
            Wait::Goes(Some(known)) if known.will_wake(waker) => (Poll::Pending, None),
            Wait::Goes(known) => (Poll::Pending, known.replace(waker.clone())),
            Wait::Ended(_) => {
                let (end, stale) = self.remove(place).unwrap_or_default();
                (end.map_or(Poll::Pending, Poll::Ready), stale)
            }
        }
    }

    /// Removes a waiter. Returns how its wait had ended, and its waker to drop; `None` if there is no
    /// such waiter.
    pub(crate) fn remove(&mut self, place: Place) -> Option<(Option<E>, Option<Waker>)> {
        let level = self.level(place)?;
        let Waiter { units, wait, .. } = level.waiters.take(place.at)?;
        Some(match wait {
            Wait::Goes(waker) => {
                level.units -= u128::from(units);
                (None, waker)
            }
            Wait::Ended(end) => {
                self.ended -= 1;
                (Some(end), None)
            }
        })
    }

    /// Calls `visit` with each waiter, in their order.
    #[cfg_attr(
        not(feature = "cas"),
        allow(dead_code, reason = "permits of a fleet use it")
    )]
    pub(crate) fn for_each(&mut self, mut visit: impl FnMut(&mut Waiter<W, E>)) {
        for level in &mut self.levels {
            let mut at = level.waiters.front();
            while let Some(waiter) = at.and_then(|at| level.waiters.get_mut(at)) {
                visit(waiter);
                at = at.and_then(|at| level.waiters.after(at));
            }
        }
    }
}
