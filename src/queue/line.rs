//! The requests that wait for one key, in their order. They hold nothing of the limit.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    sync::Arc,
    task::{Poll, Waker},
};

use super::Precedence;
use crate::key::Priority;
use crate::sync::{Mutex, lock};

/// Waiters of the highest priority first, and those of one priority in the order of their arrival, or
/// the newest first. `W` is what the owner keeps of a waiter, `E` how its wait ends.
#[derive(Debug)]
pub(crate) struct Line<W, E> {
    waiters: BTreeMap<Place, Waiter<W, E>>,
    /// The units of the waiters of each priority. There are at most 100, and they stay as long as the line.
    units: BTreeMap<Reverse<Priority>, u128>,
    joined: i64,
}

/// Where a request waits. Among those of one priority the newest have negative numbers, if they go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(Reverse<Priority>, i64);

/// A request that waits. One that has left the line has learned, or will, how its wait has ended.
#[derive(Debug)]
pub(crate) struct Waiter<W, E> {
    pub(crate) units: u64,
    pub(crate) own: W,
    wait: Arc<Mutex<Wait<E>>>,
}

#[derive(Debug)]
enum Wait<E> {
    /// `None` until the first poll.
    Goes(Option<Waker>),
    /// `None` once the request has learned it.
    Ended(Option<E>),
}

/// What a request has while it waits.
#[derive(Debug)]
pub(crate) struct Queued<E> {
    pub(crate) place: Place,
    wait: Arc<Mutex<Wait<E>>>,
}

impl<W, E> Default for Line<W, E> {
    fn default() -> Self {
        let (waiters, units, joined) = (BTreeMap::new(), BTreeMap::new(), 0);
        Self {
            waiters,
            units,
            joined,
        }
    }
}

impl<W, E> Line<W, E> {
    /// The number of requests that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// The waiters, in their order.
    #[cfg(feature = "cas")]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Waiter<W, E>> {
        self.waiters.values_mut()
    }

    /// The units of those that go before a new request.
    pub(crate) fn units_before(&self, new: Precedence) -> u64 {
        self.units_of(|level| !new.goes_before(level))
    }

    /// The units of the priorities down to the first that is not `counted`.
    pub(crate) fn units_of(&self, counted: impl Fn(Priority) -> bool) -> u64 {
        let counted = { self.units.iter() }.take_while(|(level, _)| counted(level.0));
        let units: u128 = counted.map(|(_, units)| units).sum();
        u64::try_from(units).unwrap_or(u64::MAX)
    }

    /// The first waiter.
    pub(crate) fn first(&self) -> Option<(Place, &Waiter<W, E>)> {
        let (place, first) = self.waiters.first_key_value()?;
        Some((*place, first))
    }

    /// The last waiter: the one that loses its place if there is no room for all.
    pub(crate) fn last(&self) -> Option<Place> {
        Some(*self.waiters.last_key_value()?.0)
    }

    /// The last waiter, if a new request goes before it.
    pub(crate) fn last_behind(&self, new: Precedence) -> Option<Place> {
        self.last().filter(|last| new.goes_before(last.0.0))
    }

    /// Adds a request among those of its priority.
    pub(crate) fn push(&mut self, new: Precedence, units: u64, own: W) -> Queued<E> {
        let level = Reverse(new.priority);
        *self.units.entry(level).or_default() += u128::from(units);
        self.joined += 1;
        let number = if new.is_newest() {
            -self.joined
        } else {
            self.joined
        };
        let place = Place(level, number);
        let wait = Arc::new(Mutex::new(Wait::Goes(None)));
        let waiter = Waiter {
            units,
            own,
            wait: Arc::clone(&wait),
        };
        self.waiters.insert(place, waiter);
        Queued { place, wait }
    }

    /// Removes a waiter. `None` if its wait has ended already.
    pub(crate) fn remove(&mut self, place: Place) -> Option<Waiter<W, E>> {
        let waiter = self.waiters.remove(&place)?;
        if let Some(units) = self.units.get_mut(&place.0) {
            *units -= u128::from(waiter.units);
        }
        Some(waiter)
    }
}

impl<W, E> Waiter<W, E> {
    /// Ends the wait of a waiter that was removed. Returns the waker to call without a lock.
    pub(crate) fn end(self, end: E) -> Option<Waker> {
        let ended = Wait::Ended(Some(end));
        match std::mem::replace(&mut *lock(&self.wait), ended) {
            Wait::Goes(waker) => waker,
            Wait::Ended(_) => None,
        }
    }
}

impl<E> Queued<E> {
    /// Ready once the wait has ended. Otherwise keeps the waker.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<E> {
        let mut wait = lock(&self.wait);
        // Its former waker is dropped without a lock.
        let _stale = match &mut *wait {
            Wait::Ended(end) => return end.take().map_or(Poll::Pending, Poll::Ready),
            Wait::Goes(Some(known)) if known.will_wake(waker) => None,
            Wait::Goes(known) => known.replace(waker.clone()),
        };
        drop(wait);
        Poll::Pending
    }

    /// How the wait has ended, if it has.
    pub(crate) fn ended(&self) -> Option<E> {
        match &mut *lock(&self.wait) {
            Wait::Ended(end) => end.take(),
            Wait::Goes(_) => None,
        }
    }
}
