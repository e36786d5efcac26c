//! The requests that wait for one key, in their order. They hold nothing of the limit.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    sync::Arc,
    task::{Poll, Waker},
    time::Duration,
};

use super::{Order, Precedence};
use crate::clock::Tick;
use crate::key::Priority;
use crate::receipt::Receipt;
use crate::sync::{Mutex, lock};

/// Waiters of the highest priority first, and those of one priority in the order of their arrival, or
/// the newest first.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// At most 100, which stay as long as the line.
    levels: BTreeMap<Reverse<Priority>, Level>,
    /// Until when they wait, of those that do not wait for as long as it takes.
    pub(super) deadlines: BTreeSet<(Tick, Place)>,
    joined: i64,
}

/// The waiters of one priority.
#[derive(Debug, Default)]
struct Level {
    /// By number. The first and the last one wait; of those between them some have left.
    slots: VecDeque<(i64, Option<Waiter>)>,
    waiting: usize,
    units: u128,
}

/// A level has room for at most four times as many as wait, and for some more.
const SPARE: usize = 16;

/// How a wait ends: the request has taken its cost, or may come again after this long, if ever.
pub(crate) type Ended = Result<Receipt, Option<Duration>>;

/// Where a request waits. Among those of one priority the newest have negative numbers, if they go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(Reverse<Priority>, i64);

/// A request that waits. One that has left the line has learned, or will, how its wait has ended.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) units: u64,
    until: Tick,
    wait: Arc<Mutex<Wait>>,
}

#[derive(Debug)]
enum Wait {
    /// `None` until the first poll.
    Goes(Option<Waker>),
    /// `None` once the request has learned it.
    Ended(Option<Ended>),
}

/// What a request has while it waits.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) place: Place,
    wait: Arc<Mutex<Wait>>,
}

impl Line {
    /// The number of requests that wait.
    pub(crate) fn len(&self) -> usize {
        self.levels.values().map(|level| level.waiting).sum()
    }

    /// The priorities and units of the waiters, in their order.
    #[cfg(feature = "cas")]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Priority, u64)> {
        self.levels.iter().flat_map(|(level, own)| {
            let waiters = own.slots.iter().filter_map(|slot| slot.1.as_ref());
            waiters.map(|waiter| (level.0, waiter.units))
        })
    }

    /// The units of the priorities down to the first that is not `counted`.
    pub(crate) fn units_of(&self, counted: impl Fn(Priority) -> bool) -> u64 {
        let levels = self.levels.iter();
        let counted = levels.take_while(|(level, _)| counted(level.0));
        let units: u128 = counted.map(|(_, level)| level.units).sum();
        u64::try_from(units).unwrap_or(u64::MAX)
    }

    /// The first waiter.
    pub(crate) fn first(&self) -> Option<(Place, &Waiter)> {
        self.levels.iter().find_map(|(level, own)| {
            let (number, first) = own.slots.front()?;
            Some((Place(*level, *number), first.as_ref()?))
        })
    }

    /// The last waiter: the one that loses its place if there is no room for all.
    pub(crate) fn last(&self) -> Option<Place> {
        let mut levels = self.levels.iter().rev();
        levels.find_map(|(level, own)| Some(Place(*level, own.slots.back()?.0)))
    }

    /// Adds a request among those of its priority.
    pub(crate) fn push(&mut self, new: Precedence, units: u64, until: Tick) -> Queued {
        let wait = Arc::new(Mutex::new(Wait::Goes(None)));
        let waiter = Waiter {
            units,
            until,
            wait: Arc::clone(&wait),
        };
        let level = self.levels.entry(Reverse(new.priority)).or_default();
        level.waiting += 1;
        level.units += u128::from(units);
        self.joined += 1;
        let mut place = Place(Reverse(new.priority), self.joined);
        if new.order == Order::Newest {
            place.1 = -self.joined;
            level.slots.push_front((place.1, Some(waiter)));
        } else {
            level.slots.push_back((place.1, Some(waiter)));
        }
        if until < Tick::MAX {
            self.deadlines.insert((until, place));
        }
        Queued { place, wait }
    }

    /// Removes a waiter. `None` if its wait has ended already.
    pub(crate) fn remove(&mut self, place: Place) -> Option<Waiter> {
        let level = self.levels.get_mut(&place.0)?;
        let slots = &mut level.slots;
        let at = slots.binary_search_by_key(&place.1, |slot| slot.0).ok()?;
        let waiter = slots[at].1.take()?;
        while let Some((_, None)) = slots.front() {
            slots.pop_front();
        }
        while let Some((_, None)) = slots.back() {
            slots.pop_back();
        }
        level.waiting -= 1;
        level.units -= u128::from(waiter.units);
        if slots.capacity() > 4 * level.waiting + SPARE {
            slots.retain(|slot| slot.1.is_some());
            slots.shrink_to(2 * level.waiting);
        }
        self.deadlines.remove(&(waiter.until, place));
        Some(waiter)
    }
}

impl Place {
    pub(super) const fn priority(self) -> Priority {
        self.0.0
    }
}

impl Waiter {
    /// Ends the wait of a waiter that was removed. Returns the waker to call without a lock.
    pub(crate) fn end(self, end: Ended) -> Option<Waker> {
        let ended = Wait::Ended(Some(end));
        match mem::replace(&mut *lock(&self.wait), ended) {
            Wait::Goes(waker) => waker,
            Wait::Ended(_) => None,
        }
    }
}

impl Queued {
    /// Ready once the wait has ended. Otherwise keeps the waker.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Ended> {
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
    pub(crate) fn ended(&self) -> Option<Ended> {
        match &mut *lock(&self.wait) {
            Wait::Ended(end) => end.take(),
            Wait::Goes(_) => None,
        }
    }
}
