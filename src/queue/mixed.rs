//! The waiters of a line whose costs differ, and the slots granted to them.
//!
//! A slot is granted for a cost, so only a request of the same cost may use it. The requests of
//! one cost are a class: its waiters by rank, and its positions in the line. The first waiter of
//! a class uses its first position, the second waiter its second position, and so on. A request of
//! [`Order::Newest`] takes the first position of its class, and each waiter of the class moves one
//! position of the class back. So the slots and costs of the line stay as they were granted,
//! whatever the algorithm and however many limits it has.
//!
//! When a waiter leaves, its position is removed and all behind it move earlier by what its cost is
//! worth. In a class with [`Order::Newest`] it is the last position of the class, and the waiters
//! behind the one that left move up by one.
//!
//! Every operation takes logarithmic time: a removal adds its shift to the next position, which
//! stands for all behind it.

use std::task::Waker;

use super::Order;
use super::outcome::CostOutcome;
use super::shift::{Parts, Shift};
use super::sorted_map::{SortedMap, SortedPairs};
use super::waiters::Rank;
use crate::clock::Tick;
use crate::quota::Quota;

#[derive(Debug, Default)]
pub(super) struct MixedQueue {
    /// In order of release, which is also the order of the slots.
    positions: SortedMap<Position>,
    next_index: Index,
    waiters: SortedMap<Waiter>,
    /// The cost and the rank of each waiter.
    class_ranks: SortedPairs,
    /// The cost and the index of each position: for each cost, as many as ranks.
    class_positions: SortedPairs,
    /// The costs of classes with a request of [`Order::Newest`], and zero.
    lifo_classes: SortedPairs,
    /// Its total is the shift of a request that joins: `front` and the `shift` of all positions.
    shift: Shift,
    /// The shift of all positions.
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
    /// Its position, while its class has no request of [`Order::Newest`].
    index: Index,
    waker: Option<Waker>,
}

impl MixedQueue {
    /// The waiters and slots of a line of equal costs.
    pub(super) fn new(
        cost: u64,
        is_fifo: bool,
        waiters: impl Iterator<Item = (Rank, Option<Waker>)>,
        slots: impl Iterator<Item = Tick>,
    ) -> Self {
        let mut queue = Self::default();
        for ((rank, waker), slot) in waiters.zip(slots) {
            let index = queue.next_index;
            queue.next_index += 1;
            queue.waiters.insert(rank, Waiter { cost, index, waker });
            queue.class_ranks.insert((cost, rank), 0);
            queue.add_position(index, cost, slot);
        }
        if !is_fifo && queue.len() > 0 {
            queue.lifo_classes.insert((cost, 0), 0);
        }
        queue
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn contains(&self, rank: Rank) -> bool {
        self.waiters.contains(rank)
    }

    pub(super) fn waker_mut(&mut self, rank: Rank) -> Option<&mut Option<Waker>> {
        self.waiters.get_mut(rank).map(|waiter| &mut waiter.waker)
    }

    pub(super) fn take_wakers(&mut self, wakers: &mut Vec<Waker>) {
        self.waiters
            .for_each_mut(|waiter| wakers.extend(waiter.waker.take()));
    }

    /// The slot of the first position.
    pub(super) fn first(&self) -> Option<Tick> {
        let (_, first) = self.positions.first()?;
        Some(self.slot(first, self.front + first.shift))
    }

    /// The slot of the last position.
    pub(super) fn last(&self) -> Option<Tick> {
        let (_, last) = self.positions.last()?;
        Some(self.slot(last, self.shift.total))
    }

    /// The slot of a position at which the shift is `shift`.
    fn slot(&self, position: &Position, shift: Parts) -> Tick {
        self.shift.apply(position.slot, shift - position.base)
    }

    #[cfg(all(test, not(tower_throttle_shuttle)))]
    pub(super) fn iter(&self) -> impl Iterator<Item = Tick> {
        let mut shift = self.front;
        self.positions.values().map(move |position| {
            shift += position.shift;
            self.slot(position, shift)
        })
    }

    /// The waiter of `cost` that would be released last of its class, if its place can be given to
    /// another: without a `quota`, only the place that is the last one of the line can.
    pub(super) fn last_removable_of(
        &self,
        cost: u64,
        quota: impl FnOnce() -> Option<Quota>,
    ) -> Option<Rank> {
        let rank = self.class_ranks.last_of(cost)?;
        let is_last = self.positions.last()?.0 == self.class_positions.last_of(cost)?;
        (is_last || quota().is_some()).then_some(rank)
    }

    // The methods below are not inlined: lines whose costs differ are rare, and a program has one copy.

    /// Adds a waiter to which the limiter has granted `slot`. Its rank is after all others, or
    /// before them if it is the newest.
    #[inline(never)]
    pub(super) fn join(&mut self, rank: Rank, cost: u64, slot: Tick, order: Order) {
        let index = self.next_index;
        self.next_index += 1;
        self.waiters.insert(
            rank,
            Waiter {
                cost,
                index,
                waker: None,
            },
        );
        if order == Order::Newest {
            self.lifo_classes.insert((cost, 0), 0);
        }
        self.class_ranks.insert((cost, rank), 0);
        self.add_position(index, cost, slot);
        self.sort_last(index, slot);
    }

    fn add_position(&mut self, index: Index, cost: u64, slot: Tick) {
        let position = Position {
            cost,
            slot,
            base: self.shift.total,
            shift: 0,
        };
        self.positions.insert(index, position);
        self.class_positions.insert((cost, index), 0);
    }

    /// Moves `slot`, which is at `index`, before those that are later. The costs stay:
    /// positions that are earlier by that go to the waiters in order.
    fn sort_last(&mut self, mut index: Index, slot: Tick) {
        let mut shift = self.shift.total;
        while let Some((ahead, position)) = self.positions.before(index) {
            let step = self.positions.get(index).map_or(0, |behind| behind.shift);
            if self.slot(position, shift - step) <= slot {
                return;
            }
            let (later, base) = (position.slot, position.base);
            if let Some(behind) = self.positions.get_mut(index) {
                (behind.slot, behind.base) = (later, base + step);
            }
            shift -= step;
            index = ahead;
            if let Some(position) = self.positions.get_mut(index) {
                (position.slot, position.base) = (slot, shift);
            }
        }
    }

    /// Removes the waiters whose slots have come by `now`, at most `most`, and adds their wakers
    /// to `wakers`. Returns the rank of the last one.
    #[inline(never)]
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
            let (index, _) = self.positions.first()?;
            let position = self.positions.remove(index)?;
            self.front += position.shift;
            self.class_positions.remove((position.cost, index));
            let rank = self.class_ranks.first_of(position.cost)?;
            self.remove_rank(position.cost, rank);
            wakers.extend(self.waiters.remove(rank)?.waker);
            last = Some(rank);
        }
        last
    }

    /// Removes the waiter of this rank. All behind it move earlier by what its cost is worth;
    /// without a `quota` that tells, they keep their slots. Returns the waker too, or `None` if
    /// there is no such waiter.
    #[inline(never)]
    pub(super) fn remove(
        &mut self,
        rank: Rank,
        quota: impl FnOnce() -> Option<Quota>,
    ) -> Option<(CostOutcome, Option<Waker>)> {
        let waiter = self.waiters.remove(rank)?;
        let index = if self.lifo_classes.get((waiter.cost, 0)).is_none() {
            waiter.index
        } else {
            self.class_positions.last_of(waiter.cost)?
        };
        self.class_positions.remove((waiter.cost, index));
        self.remove_rank(waiter.cost, rank);
        let is_last = self.positions.last()?.0 == index;
        let quota = if is_last { None } else { quota() };
        let mut worth = 0;
        if let Some(quota) = &quota {
            worth = self.prepare(waiter.cost, quota);
            self.shift.add(worth, quota);
        }
        let position = self.positions.remove(index)?;
        match self.positions.after_mut(index) {
            Some(behind) => behind.shift += position.shift + worth,
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
        let worth = self.prepare(cost, quota);
        self.front += worth;
        self.shift.add(worth, quota);
    }

    /// What `cost` is worth, which can then be added to the shift.
    fn prepare(&mut self, cost: u64, quota: &Quota) -> Parts {
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
        self.positions.for_each_mut(|position| {
            shift += position.shift;
            position.slot = plan(total.apply(position.slot, shift - position.base));
            (position.base, position.shift) = (0, 0);
        });
        self.front = 0;
        self.shift = Shift::default();
    }

    /// Removes a rank from its class, and the class if that is empty then.
    fn remove_rank(&mut self, cost: u64, rank: Rank) {
        self.class_ranks.remove((cost, rank));
        if self.class_ranks.first_of(cost).is_none() {
            self.lifo_classes.remove((cost, 0));
        }
    }
}

#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;

    /// The same in plain lists: slots with their remainders, costs, and waiters by rank.
    #[derive(Default)]
    struct Model {
        slots: Vec<(u64, u128)>,
        costs: Vec<u64>,
        waiters: Vec<(Rank, u64)>,
        lifo: BTreeSet<u64>,
    }

    impl Model {
        fn join(&mut self, rank: Rank, cost: u64, slot: u64, order: Order) {
            let at = self.slots.partition_point(|one| one.0 <= slot);
            self.slots.insert(at, (slot, 0));
            self.costs.push(cost);
            self.waiters.push((rank, cost));
            self.waiters.sort_unstable();
            if order == Order::Newest {
                self.lifo.insert(cost);
            }
        }

        /// The ranks, or the positions, of a cost.
        fn ranks(&self, cost: u64) -> Vec<Rank> {
            let all = self.waiters.iter().filter(|one| one.1 == cost);
            all.map(|one| one.0).collect()
        }

        fn positions(&self, cost: u64) -> Vec<usize> {
            (0..self.costs.len())
                .filter(|at| self.costs[*at] == cost)
                .collect()
        }

        fn remove_waiter(&mut self, rank: Rank) -> u64 {
            let at = self.waiters.iter().position(|one| one.0 == rank);
            let (_, cost) = self.waiters.remove(at.expect("it waits"));
            if self.ranks(cost).is_empty() {
                self.lifo.remove(&cost);
            }
            cost
        }

        fn remove(&mut self, rank: Rank, quota: Option<&Quota>) -> CostOutcome {
            let cost = self.waiters.iter().find(|one| one.0 == rank);
            let cost = cost.expect("it waits").1;
            let positions = self.positions(cost);
            let at = if self.lifo.contains(&cost) {
                positions[positions.len() - 1]
            } else {
                let of_class = self.ranks(cost).iter().position(|one| *one == rank);
                positions[of_class.expect("it is of this class")]
            };
            self.remove_waiter(rank);
            self.costs.remove(at);
            self.slots.remove(at);
            if at == self.costs.len() {
                return CostOutcome::Refund;
            }
            let Some(quota) = quota else {
                return CostOutcome::Keep;
            };
            self.shift(at, cost, quota);
            CostOutcome::Refund
        }

        fn shift(&mut self, from: usize, cost: u64, quota: &Quota) {
            let limit = u128::from(quota.limit());
            for (at, rest) in &mut self.slots[from..] {
                let all = *rest + u128::from(cost) * u128::from(quota.period_ns());
                *at = at.saturating_sub(u64::try_from(all / limit).expect("it is small"));
                *rest = all % limit;
            }
        }

        fn release(&mut self, now: u64, most: usize) -> Vec<Rank> {
            let mut released = Vec::new();
            while released.len() < most && self.slots.first().is_some_and(|one| one.0 <= now) {
                let (cost, _) = (self.costs.remove(0), self.slots.remove(0));
                let rank = self.ranks(cost)[0];
                self.remove_waiter(rank);
                released.push(rank);
            }
            released
        }
    }

    #[test]
    fn a_mixed_queue_behaves_like_plain_lists() {
        const PERIOD: u64 = 1_000_000_007;

        let quota = Quota::per(9, Duration::from_nanos(PERIOD));
        let (mut queue, mut model) = (MixedQueue::default(), Model::default());
        let (mut next, mut front) = (1_000_000, 1_000_000);
        let (mut random, mut longest, mut kept, mut shed) = (5_u64, 0, 0, 0);
        let mut end = 1_000 * PERIOD;
        for _ in 0..12_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let (what, which) = (random >> 60, random >> 40 & 0xffff);
            let cost = which % 4 + 1;
            match what {
                0..=7 => {
                    let order = if what < 6 {
                        Order::Oldest
                    } else {
                        Order::Newest
                    };
                    let rank = if order == Order::Oldest {
                        next += 1;
                        next
                    } else {
                        front -= 1;
                        front
                    };
                    // Now and then a slot before those of others, which removals have moved.
                    let slot = match model.slots.last() {
                        Some((last, _)) if which > 60_000 => {
                            last.saturating_sub((which - 60_000) * PERIOD / 9_000)
                        }
                        _ => end,
                    };
                    queue.join(rank, cost, Tick::from_nanos(slot), order);
                    model.join(rank, cost, slot, order);
                    end += cost * PERIOD / 9;
                }
                8..=11 if !model.waiters.is_empty() => {
                    let at = usize::try_from(which).expect("it is small") % model.waiters.len();
                    let rank = model.waiters[at].0;
                    let quota = (which % 8 > 0).then_some(&quota);
                    let expected = model.remove(rank, quota);
                    let left = queue.remove(rank, || quota.copied());
                    assert_eq!(left.map(|left| left.0), Some(expected));
                    assert!(queue.remove(rank, || None).is_none());
                    kept += usize::from(expected == CostOutcome::Keep);
                }
                12 => {
                    let (now, most) = (
                        end - which % 64 * PERIOD,
                        1 + cost.trailing_zeros() as usize,
                    );
                    let released = model.release(now, most);
                    let last = queue.release(Tick::from_nanos(now), most, &mut Vec::new());
                    assert_eq!(last, released.last().copied());
                }
                13 => {
                    let last = model.ranks(cost).pop();
                    assert_eq!(queue.last_removable_of(cost, || Some(quota)), last);
                    let is_last = model.costs.last() == Some(&cost);
                    assert_eq!(
                        queue.last_removable_of(cost, || None),
                        last.filter(|_| is_last)
                    );
                    shed += usize::from(last.is_some());
                }
                14 => {
                    queue.shift_earlier(cost, &quota);
                    model.shift(0, cost, &quota);
                }
                15 if which < 5_000 => {
                    queue.reschedule(|slot| slot);
                    model.slots.iter_mut().for_each(|one| one.1 = 0);
                }
                _ => {}
            }
            let times: Vec<_> = queue.iter().map(Tick::as_nanos).collect();
            let known: Vec<_> = model.slots.iter().map(|one| one.0).collect();
            assert_eq!(times, known);
            assert_eq!(queue.first().map(Tick::as_nanos), known.first().copied());
            assert_eq!(queue.last().map(Tick::as_nanos), known.last().copied());
            assert!(
                queue
                    .waiters
                    .keys()
                    .eq(model.waiters.iter().map(|one| one.0))
            );
            longest = longest.max(known.len());
        }
        assert!(
            longest > 50 && kept > 100 && shed > 100,
            "too little happened"
        );
    }
}
