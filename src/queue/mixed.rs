//! The waiters of a line whose costs differ, and the slots granted to them.
//!
//! # Classes
//! A slot is granted for a cost, so only a request of the same cost may use it. The requests of one
//! cost are a class. A class has waiters, ordered by rank, and as many positions in the line. The
//! first waiter uses the first position of its class, the second waiter the second one, and so on. A
//! request that goes before others of its class takes the position of the first of them, and each of
//! them moves one position of the class back. The slots and costs of the line stay as they were
//! granted. That is right for every algorithm and any number of limits.
//!
//! # Removals
//! A cost is worth the time in which the limit refills it. When a waiter leaves, its position is
//! removed and all positions behind it move earlier by what the cost is worth. In a class in which a
//! request has overtaken others, the last position of the class is removed instead, and
//! the waiters behind the one that left each move up to the next position of the class.
//!
//! Every operation takes logarithmic time, because a removal stores its shift at one position: the
//! shift of a position is the sum of those stored up to it.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;

use super::outcome::CostOutcome;
use super::shift::{Parts, Shift};
use super::waiters::Rank;
use crate::clock::Tick;
use crate::quota::Quota;

#[derive(Debug, Default)]
pub(super) struct MixedQueue {
    /// In order of release, which is also the order of the slots.
    positions: BTreeMap<Index, Position>,
    next_index: Index,
    waiters: BTreeMap<Rank, Waiter>,
    /// The cost and the rank of each waiter.
    class_ranks: BTreeSet<(u64, Rank)>,
    /// The cost and the index of each position. Each cost has as many positions as ranks.
    class_positions: BTreeSet<(u64, Index)>,
    /// The costs of the classes in which a request has overtaken others.
    overtaken: BTreeSet<u64>,
    /// Its total is the shift at the end of the line: `front` and the `shift` of every position.
    shift: Shift,
    /// The part of the shift that all positions have in common.
    front: Parts,
}

type Index = u64;

#[derive(Debug)]
struct Position {
    cost: u64,
    slot: Tick,
    /// The shift at this position when the slot was granted.
    base: Parts,
    /// The further shift from this position on.
    shift: Parts,
}

#[derive(Debug)]
struct Waiter {
    cost: u64,
    /// Its position. Not valid in a class in which a request has overtaken others.
    index: Index,
    waker: Option<Waker>,
}

impl MixedQueue {
    /// The waiters and slots of a line of equal costs. `has_overtaken`: whether a request has overtaken
    /// others in it.
    pub(super) fn new(
        cost: u64,
        has_overtaken: bool,
        waiters: impl Iterator<Item = (Rank, Option<Waker>)>,
        slots: impl Iterator<Item = Tick>,
    ) -> Self {
        let mut queue = Self::default();
        for ((rank, waker), slot) in waiters.zip(slots) {
            queue.add(rank, cost, slot, waker);
        }
        if has_overtaken && queue.len() > 0 {
            queue.overtaken.insert(cost);
        }
        queue
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn contains(&self, rank: Rank) -> bool {
        self.waiters.contains_key(&rank)
    }

    pub(super) fn waker_mut(&mut self, rank: Rank) -> Option<&mut Option<Waker>> {
        self.waiters.get_mut(&rank).map(|waiter| &mut waiter.waker)
    }

    /// The slot of the first position.
    pub(super) fn first(&self) -> Option<Tick> {
        let (_, first) = self.positions.first_key_value()?;
        Some(self.slot(first, self.front + first.shift))
    }

    /// The slot of the last position.
    pub(super) fn last(&self) -> Option<Tick> {
        let (_, last) = self.positions.last_key_value()?;
        Some(self.slot(last, self.shift.total))
    }

    /// The slot of a position at which the shift is `shift`.
    fn slot(&self, position: &Position, shift: Parts) -> Tick {
        self.shift.apply(position.slot, shift - position.base)
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = Tick> {
        let mut shift = self.front;
        self.positions.values().map(move |position| {
            shift += position.shift;
            self.slot(position, shift)
        })
    }

    /// The last waiter of the class of `cost`, if it can be removed for a new request. Without a
    /// `quota` it can only if the last position of the line is of its class: then none behind it has
    /// to move.
    pub(super) fn last_removable_of(
        &self,
        cost: u64,
        quota: impl FnOnce() -> Option<Quota>,
    ) -> Option<Rank> {
        let rank = last_of(&self.class_ranks, cost)?;
        let is_last = *self.positions.last_key_value()?.0 == last_of(&self.class_positions, cost)?;
        (is_last || quota().is_some()).then_some(rank)
    }

    /// The number of waiters of the class of `cost` that can make room for a request of `rank`: the last
    /// one, if it is behind it.
    pub(super) fn removable_behind(
        &self,
        rank: Rank,
        cost: u64,
        quota: impl FnOnce() -> Option<Quota>,
    ) -> usize {
        let last = self.last_removable_of(cost, quota);
        usize::from(last.is_some_and(|last| last > rank))
    }

    /// The rank of the last waiter.
    pub(super) fn last_rank(&self) -> Option<Rank> {
        self.waiters.last_key_value().map(|(rank, _)| *rank)
    }

    /// Adds a waiter to which the limiter has granted `slot`.
    pub(super) fn join(&mut self, rank: Rank, cost: u64, slot: Tick) {
        if last_of(&self.class_ranks, cost).is_some_and(|last| last > rank) {
            self.overtaken.insert(cost);
        }
        let index = self.add(rank, cost, slot, None);
        self.sort_last(index, slot);
    }

    /// Adds a waiter, and a position behind all others.
    fn add(&mut self, rank: Rank, cost: u64, slot: Tick, waker: Option<Waker>) -> Index {
        let index = self.next_index;
        self.next_index += 1;
        self.waiters.insert(rank, Waiter { cost, index, waker });
        self.class_ranks.insert((cost, rank));
        let position = Position {
            cost,
            slot,
            base: self.shift.total,
            shift: 0,
        };
        self.positions.insert(index, position);
        self.class_positions.insert((cost, index));
        index
    }

    /// Sorts `slot`, which was added at `index`, the end of the line. Slots change places, costs do
    /// not: an early slot goes to the first waiter, not to the one that was granted it.
    fn sort_last(&mut self, mut index: Index, slot: Tick) {
        let mut shift = self.shift.total;
        while let Some((&ahead, position)) = self.positions.range(..index).next_back() {
            let step = self.positions.get(&index).map_or(0, |behind| behind.shift);
            if self.slot(position, shift - step) <= slot {
                return;
            }
            let (later, base) = (position.slot, position.base);
            if let Some(behind) = self.positions.get_mut(&index) {
                (behind.slot, behind.base) = (later, base + step);
            }
            shift -= step;
            index = ahead;
            if let Some(position) = self.positions.get_mut(&index) {
                (position.slot, position.base) = (slot, shift);
            }
        }
    }

    /// Removes the waiters whose slots have come by `now`, at most `most`, and adds their wakers
    /// to `wakers`. Returns the rank of the last one.
    pub(super) fn release(
        &mut self,
        now: Tick,
        most: usize,
        wakers: &mut Vec<Waker>,
    ) -> Option<Rank> {
        let mut last = None;
        for _ in 0..most {
            if self.first().is_none_or(|first| first > now) {
                break;
            }
            let (index, position) = self.positions.pop_first()?;
            self.front += position.shift;
            self.class_positions.remove(&(position.cost, index));
            let rank = first_of(&self.class_ranks, position.cost)?;
            self.remove_rank(position.cost, rank);
            wakers.extend(self.waiters.remove(&rank)?.waker);
            last = Some(rank);
        }
        last
    }

    /// Removes the waiter of this rank and returns its waker. The positions behind it move earlier by
    /// what its cost is worth. Without a `quota`, that is not known and they stay. Returns `None` if
    /// there is no such waiter.
    pub(super) fn remove(
        &mut self,
        rank: Rank,
        quota: &dyn Fn() -> Option<Quota>,
    ) -> Option<(CostOutcome, Option<Waker>)> {
        let waiter = self.waiters.remove(&rank)?;
        let index = if self.overtaken.contains(&waiter.cost) {
            last_of(&self.class_positions, waiter.cost)?
        } else {
            waiter.index
        };
        self.class_positions.remove(&(waiter.cost, index));
        self.remove_rank(waiter.cost, rank);
        let is_last = *self.positions.last_key_value()?.0 == index;
        let quota = if is_last { None } else { quota() };
        let mut worth = 0;
        if let Some(quota) = &quota {
            worth = self.worth_to_add(waiter.cost, quota);
            self.shift.add(worth, quota);
        }
        let position = self.positions.remove(&index)?;
        match self.positions.range_mut(index..).next() {
            Some((_, behind)) => behind.shift += position.shift + worth,
            None => self.shift.total -= position.shift,
        }
        let outcome = if is_last || quota.is_some() {
            CostOutcome::Refund
        } else {
            CostOutcome::Keep
        };
        Some((outcome, waiter.waker))
    }

    /// Moves all slots earlier by what `cost` is worth.
    pub(super) fn shift_earlier(&mut self, cost: u64, quota: &Quota) {
        let worth = self.worth_to_add(cost, quota);
        self.front += worth;
        self.shift.add(worth, quota);
    }

    /// What `cost` is worth. It can then be added to the shift: if it could not, all slots are stored
    /// anew with a shift of zero.
    fn worth_to_add(&mut self, cost: u64, quota: &Quota) -> Parts {
        let worth = Shift::worth(cost, quota);
        if !self.shift.can_add(worth, quota) {
            self.reschedule(|slot| slot);
        }
        worth
    }

    /// Replaces each slot.
    pub(super) fn reschedule(&mut self, plan: impl Fn(Tick) -> Tick) {
        let mut shift = self.front;
        let total = &self.shift;
        for position in self.positions.values_mut() {
            shift += position.shift;
            position.slot = plan(total.apply(position.slot, shift - position.base));
            (position.base, position.shift) = (0, 0);
        }
        self.front = 0;
        self.shift = Shift::default();
    }

    /// Removes a rank from its class, and the class if that is empty then.
    fn remove_rank(&mut self, cost: u64, rank: Rank) {
        self.class_ranks.remove(&(cost, rank));
        if first_of(&self.class_ranks, cost).is_none() {
            self.overtaken.remove(&cost);
        }
    }
}

/// The least number of the pairs that begin with `cost`.
fn first_of(pairs: &BTreeSet<(u64, u64)>, cost: u64) -> Option<u64> {
    let mut of_cost = pairs.range((cost, 0)..=(cost, u64::MAX));
    of_cost.next().map(|(_, number)| *number)
}

/// The greatest number of the pairs that begin with `cost`.
fn last_of(pairs: &BTreeSet<(u64, u64)>, cost: u64) -> Option<u64> {
    let mut of_cost = pairs.range((cost, 0)..=(cost, u64::MAX));
    of_cost.next_back().map(|(_, number)| *number)
}

#[cfg(all(test, not(tower_throttle_loom)))]
mod tests;
