//! The waiters of a line whose costs are equal, and the slots granted to them.
//!
//! The slots and the waiters are two lists, and the n-th waiter uses the n-th slot. When
//! a waiter leaves, the limiter gets its cost back and grants the last slot again. So the last
//! slot is dropped, and all waiters behind move up by one. That is exact for every algorithm and
//! any number of limits, and takes constant time.

use std::collections::VecDeque;
use std::task::Waker;

use super::waiters::{Rank, Waiters};
use crate::clock::Tick;

#[derive(Debug, Default)]
pub(super) struct UniformQueue {
    /// The cost of each waiter.
    pub(super) cost: u64,
    waiters: Waiters,
    /// As many as waiters, earliest first.
    slots: VecDeque<Tick>,
    /// Whether a request has joined that was not the last one.
    pub(super) has_overtaken: bool,
}

impl UniformQueue {
    pub(super) fn new(cost: u64) -> Self {
        Self {
            cost,
            ..Self::default()
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn contains(&self, rank: Rank) -> bool {
        self.waiters.contains(rank)
    }

    pub(super) fn waker_mut(&mut self, rank: Rank) -> Option<&mut Option<Waker>> {
        self.waiters.waker_mut(rank)
    }

    pub(super) fn first(&self) -> Option<Tick> {
        self.slots.front().copied()
    }

    pub(super) fn last(&self) -> Option<Tick> {
        self.slots.back().copied()
    }

    #[cfg(all(test, tower_throttle_loom))]
    pub(super) fn iter(&self) -> impl Iterator<Item = Tick> {
        self.slots.iter().copied()
    }

    /// The number of waiters behind `rank`.
    pub(super) fn behind(&self, rank: Rank) -> usize {
        self.waiters.behind(rank)
    }

    pub(super) fn is_last(&self, rank: Rank) -> bool {
        self.waiters.is_last(rank)
    }

    pub(super) fn join(&mut self, rank: Rank, slot: Tick) {
        // Two threads may arrive in another order than the limiter decided in.
        let at = match self.last() {
            Some(last) if last > slot => self.slots.partition_point(|one| *one <= slot),
            _ => self.slots.len(),
        };
        self.slots.insert(at, slot);
        let is_last = self.waiters.insert(rank);
        self.has_overtaken |= !is_last;
    }

    /// Removes the waiters whose slots have come by `now`, at most `most`, and adds their wakers
    /// to `wakers`. Returns the rank of the last one.
    pub(super) fn release(
        &mut self,
        now: Tick,
        most: usize,
        wakers: &mut Vec<Waker>,
    ) -> Option<Rank> {
        let is_due = |slot: &&Tick| **slot <= now;
        let due = self.slots.iter().take(most).take_while(is_due).count();
        self.slots.drain(..due);
        self.waiters.take_front(due, wakers)
    }

    /// Removes the waiter of this rank. Returns its waker, or `None` if there is no such waiter.
    #[expect(
        clippy::option_option,
        reason = "a waiter may have no waker yet, and there may be no such waiter"
    )]
    pub(super) fn remove(&mut self, rank: Rank) -> Option<Option<Waker>> {
        let waker = self.waiters.remove(rank)?;
        self.slots.pop_back();
        Some(waker)
    }

    /// Removes the last waiter.
    pub(super) fn pop_back(&mut self) -> Option<(Rank, Option<Waker>)> {
        let last = self.waiters.pop_back()?;
        self.slots.pop_back();
        Some(last)
    }

    /// Gives `slot` to the first waiter, and to each other one the slot of the one
    /// before it.
    pub(super) fn move_up(&mut self, slot: Tick) {
        if !self.slots.is_empty() {
            self.slots.push_front(slot);
            self.slots.pop_back();
        }
    }

    /// Replaces each slot.
    pub(super) fn reschedule(&mut self, new_slot: impl Fn(Tick) -> Tick) {
        for slot in &mut self.slots {
            *slot = new_slot(*slot);
        }
    }

    /// The waiters and the slots, each in order.
    pub(super) fn into_parts(
        self,
    ) -> (
        impl Iterator<Item = (Rank, Option<Waker>)>,
        impl Iterator<Item = Tick>,
    ) {
        (self.waiters.drain(), self.slots.into_iter())
    }
}
