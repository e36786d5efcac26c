//! The requests that wait for one key, in their order. They hold nothing of the limit.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap, VecDeque},
    task::{Poll, Waker},
    time::Duration,
};

use foldhash::fast::FixedState;

use super::Order;
use crate::clock::Tick;
use crate::decision::LineCosts;
use crate::key::Weight;
use crate::receipt::Receipt;

/// Waiters of the highest priority first, and those of one priority in the order of their arrival, or
/// the newest first.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// At most 256, which stay as long as the line.
    levels: Vec<(Reverse<u8>, Level)>,
    /// Until when they wait, of those that do not wait for as long as it takes.
    pub(super) deadlines: BTreeSet<(Tick, Place)>,
    /// Of the requests that wait no longer, and have not learned it.
    pub(super) ended: HashMap<Place, Ended, FixedState>,
}

/// The waiters of one priority.
#[derive(Debug, Default)]
struct Level {
    /// By place. The first and the last one wait; of those between them some have left.
    slots: VecDeque<Slot>,
    waiting: usize,
    units: u128,
    /// The cost of each that has come since none waited, if all are equal.
    each: Option<u64>,
    joined: u64,
}

type Slot = (Place, Option<Waiter>);

/// A level has room for at most four times as many as wait, and for some more.
const SPARE: usize = 16;

/// How a wait ends: the request has taken its cost, or may come again after this long, if ever.
pub(crate) type Ended = Result<Receipt, Option<Duration>>;

/// Where a request waits: how far its priority is below the highest one (8 bits), and its number in that priority (56 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place(u64);

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(super) units: u64,
    until: Tick,
    /// `None` until the first poll.
    waker: Option<Waker>,
}

impl Line {
    /// The number of requests that wait.
    pub(crate) fn len(&self) -> usize {
        self.levels.iter().map(|(_, own)| own.waiting).sum()
    }

    /// The priorities and units of the waiters, in their order.
    #[cfg(feature = "cas")]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u8, u64)> {
        self.levels.iter().flat_map(|(level, own)| {
            let waiters = own.slots.iter().filter_map(|slot| slot.1.as_ref());
            waiters.map(|waiter| (level.0, waiter.units))
        })
    }

    /// These costs behind those of the priorities down to the first that is not `counted`.
    pub(crate) fn before(&self, own: LineCosts, counted: impl Fn(u8) -> bool) -> LineCosts {
        let levels = self.levels.iter();
        let counted = levels.take_while(|(level, _)| counted(level.0));
        counted.fold(own, |own, (_, level)| own.behind(level.units, level.each))
    }

    /// The first waiter.
    pub(crate) fn first(&self) -> Option<(Place, &Waiter)> {
        self.levels.iter().find_map(|(_, own)| {
            let (place, first) = own.slots.front()?;
            Some((*place, first.as_ref()?))
        })
    }

    /// The last waiter: the one that loses its place if there is no room for all.
    pub(crate) fn last(&self) -> Option<Place> {
        let mut levels = self.levels.iter().rev();
        levels.find_map(|(_, own)| Some(own.slots.back()?.0))
    }

    /// Adds a request among those of its priority.
    pub(crate) fn push(&mut self, new: Weight, order: Order, until: Tick) -> Place {
        let waker = None;
        let waiter = Waiter {
            units: new.cost,
            until,
            waker,
        };
        let priority = Reverse(new.priority);
        let level = self.levels.binary_search_by_key(&priority, |level| level.0);
        let level = level.unwrap_or_else(|at| {
            self.levels.insert(at, (priority, Level::default()));
            at
        });
        let level = &mut self.levels[level].1;
        level.each = (level.units == 0 || level.each == Some(new.cost)).then_some(new.cost);
        level.waiting += 1;
        level.units += u128::from(new.cost);
        level.joined += 1;
        // The newest have lower and lower numbers if they go first.
        let middle = (u64::from(u8::MAX - new.priority) << 56) + (1 << 55);
        let mut place = Place(middle + level.joined);
        if order == Order::Newest {
            place = Place(middle - level.joined);
            level.slots.push_front((place, Some(waiter)));
        } else {
            level.slots.push_back((place, Some(waiter)));
        }
        if until < Tick::MAX {
            self.deadlines.insert((until, place));
        }
        place
    }

    /// The priority of a waiter, and its slot.
    fn find(&mut self, place: Place) -> Option<(&mut Level, usize)> {
        let priority = Reverse(place.priority());
        let level = self.levels.binary_search_by_key(&priority, |level| level.0);
        let level = &mut self.levels[level.ok()?].1;
        let at = |slot: &Slot| slot.0.cmp(&place);
        // Where it is unless some have left.
        let first = level.slots.front()?.0;
        let guess = usize::try_from(place.0.wrapping_sub(first.0)).unwrap_or(usize::MAX);
        let is_there = level.slots.get(guess).is_some_and(|slot| at(slot).is_eq());
        let found = if is_there {
            Ok(guess)
        } else {
            level.slots.binary_search_by(at)
        };
        Some((level, found.ok()?))
    }

    /// Removes a waiter. `None` if its wait has ended already.
    pub(super) fn remove(&mut self, place: Place) -> Option<Waiter> {
        let (level, at) = self.find(place)?;
        let slots = &mut level.slots;
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

    /// Ends a wait. Returns the waker to call without a lock.
    pub(super) fn end(&mut self, place: Place, end: Ended) -> Option<Waker> {
        let waiter = self.remove(place)?;
        self.ended.insert(place, end);
        waiter.waker
    }

    /// Ready once the wait has ended. Otherwise keeps the waker. The former one is to be dropped without a lock.
    pub(super) fn poll(&mut self, place: Place, waker: &Waker) -> (Poll<Ended>, Option<Waker>) {
        if let Some(end) = self.ended.remove(&place) {
            return (Poll::Ready(end), None);
        }
        let found = self.find(place);
        let waiter = found.and_then(|(level, at)| level.slots[at].1.as_mut());
        let known = waiter.map(|waiter| &mut waiter.waker);
        let new = known.filter(|known| known.as_ref().is_none_or(|known| !known.will_wake(waker)));
        let stale = new.and_then(|known| known.replace(waker.clone()));
        (Poll::Pending, stale)
    }
}

impl Place {
    pub(super) const fn priority(self) -> u8 {
        u8::MAX - self.0.to_be_bytes()[0]
    }
}
