//! The waiters of a line of equal costs, in order, found by rank; and how ranks are given.
//!
//! The entries are sorted by rank. As long as none is removed from the middle, the index follows
//! from the rank. A removal from the middle leaves a tombstone, or all entries behind it would have
//! to be moved. Tombstones are dropped once more than half of the entries are tombstones. From then
//! on, and if ranks are not contiguous, the rank is found by binary search.

use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;

use super::{Order, Precedence};

/// The order of waiters: the lowest rank is released first. No rank of a line is used twice.
pub(super) type Rank = u64;

/// How many ranks a level has. All 128 levels together stay below [`TOMBSTONE`].
const RANKS_PER_LEVEL: Rank = 1 << 55;

/// Set in the rank of an entry whose waiter has left.
const TOMBSTONE: Rank = 1 << 63;

/// This many tombstones are not worth a compaction.
const MIN_TOMBSTONES: usize = 32;

/// The ranks that a line has used.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    /// Of level 0, which is all there is without priorities.
    first: Used,
    others: BTreeMap<u8, Used>,
    highest: Rank,
}

/// The ranks of a level that were used: from `front` to below `next`.
#[derive(Clone, Copy, Debug)]
struct Used {
    front: Rank,
    next: Rank,
}

impl Used {
    /// None, so the next one is in the middle of those of the level.
    fn none(level: u8) -> Self {
        let middle = Rank::from(level) * RANKS_PER_LEVEL + RANKS_PER_LEVEL / 2;
        Self {
            front: middle,
            next: middle,
        }
    }

    const fn give(&mut self, order: Order) -> Rank {
        match order {
            Order::Oldest => {
                self.next += 1;
                self.next - 1
            }
            Order::Newest => {
                self.front -= 1;
                self.front
            }
        }
    }
}

impl Default for Used {
    fn default() -> Self {
        Self::none(0)
    }
}

impl Ranks {
    /// The rank that the next waiter with this precedence gets.
    pub(super) fn peek(&self, Precedence { order, level }: Precedence) -> Rank {
        let mut used = match level {
            0 => self.first,
            _ => self
                .others
                .get(&level)
                .copied()
                .unwrap_or_else(|| Used::none(level)),
        };
        used.give(order)
    }

    /// A rank that was not used, and whether it is after all that were.
    pub(super) fn give(&mut self, Precedence { order, level }: Precedence) -> (Rank, bool) {
        let used = match level {
            0 => &mut self.first,
            _ => self
                .others
                .entry(level)
                .or_insert_with(|| Used::none(level)),
        };
        let rank = used.give(order);
        let is_last = rank > self.highest;
        self.highest = self.highest.max(rank);
        (rank, is_last)
    }
}

#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// Neither the first nor the last entry is a tombstone.
    entries: VecDeque<Waiter>,
    /// The number of entries that are not tombstones.
    live: usize,
}

#[derive(Debug)]
struct Waiter {
    rank: Rank,
    /// `None` until the first poll.
    waker: Option<Waker>,
}

impl Waiters {
    pub(super) const fn len(&self) -> usize {
        self.live
    }

    /// Adds a waiter. Returns whether it is the last one.
    pub(super) fn insert(&mut self, rank: Rank) -> bool {
        let at = self.index_of(rank);
        let is_last = at == self.entries.len();
        self.live += 1;
        self.entries.insert(at, Waiter { rank, waker: None });
        is_last
    }

    /// The number of waiters behind `rank`.
    pub(super) fn behind(&self, rank: Rank) -> usize {
        let at = self.index_of(rank);
        if at == 0 || self.live == self.entries.len() {
            return self.live - at;
        }
        let behind = self.entries.range(at..);
        behind.filter(|waiter| waiter.rank & TOMBSTONE == 0).count()
    }

    /// Whether none is behind `rank`.
    pub(super) fn is_last(&self, rank: Rank) -> bool {
        self.entries.back().is_none_or(|last| last.rank <= rank)
    }

    /// How many entries are before `rank`.
    fn index_of(&self, rank: Rank) -> usize {
        match self.entries.back() {
            Some(last) if last.rank >= rank => self
                .entries
                .partition_point(|waiter| waiter.rank & !TOMBSTONE < rank),
            _ => self.entries.len(),
        }
    }

    /// Removes the first `many` waiters and adds their wakers to `wakers`. Returns the rank of the
    /// last one.
    pub(super) fn take_front(&mut self, many: usize, wakers: &mut Vec<Waker>) -> Option<Rank> {
        let mut last = None;
        for _ in 0..many {
            let Some(Waiter { rank, waker }) = self.entries.pop_front() else {
                break;
            };
            self.live -= 1;
            self.trim();
            last = Some(rank);
            wakers.extend(waker);
        }
        last
    }

    /// Removes all waiters, in order.
    pub(super) fn drain(self) -> impl Iterator<Item = (Rank, Option<Waker>)> {
        let entries = self.entries.into_iter();
        entries
            .filter(|waiter| waiter.rank & TOMBSTONE == 0)
            .map(|waiter| (waiter.rank, waiter.waker))
    }

    pub(super) fn pop_back(&mut self) -> Option<(Rank, Option<Waker>)> {
        let Waiter { rank, waker } = self.entries.pop_back()?;
        self.live -= 1;
        self.trim();
        Some((rank, waker))
    }

    pub(super) fn contains(&self, rank: Rank) -> bool {
        self.find(rank).is_some()
    }

    /// The index of the entry with this rank, unless it is a tombstone.
    fn find(&self, rank: Rank) -> Option<usize> {
        let first = self.entries.front()?.rank;
        let guess = usize::try_from(rank.checked_sub(first)?).ok()?;
        let found = match self.entries.get(guess) {
            Some(waiter) if waiter.rank & !TOMBSTONE == rank => guess,
            _ => self.index_of(rank),
        };
        (self.entries.get(found)?.rank == rank).then_some(found)
    }

    /// The waker of the waiter with this rank.
    pub(super) fn waker_mut(&mut self, rank: Rank) -> Option<&mut Option<Waker>> {
        let at = self.find(rank)?;
        Some(&mut self.entries.get_mut(at)?.waker)
    }

    /// Removes the waiter with this rank. Returns its waker, or `None` if there is no such waiter.
    #[expect(
        clippy::option_option,
        reason = "a waiter may have no waker yet, and there may be no such waiter"
    )]
    pub(super) fn remove(&mut self, rank: Rank) -> Option<Option<Waker>> {
        let at = self.find(rank)?;
        let waiter = self.entries.get_mut(at)?;
        waiter.rank |= TOMBSTONE;
        let waker = waiter.waker.take();
        self.live -= 1;
        self.trim();
        if self.entries.len() > 2 * self.live + MIN_TOMBSTONES {
            self.entries.retain(|waiter| waiter.rank & TOMBSTONE == 0);
        }
        Some(waker)
    }

    /// Drops tombstones at both ends.
    fn trim(&mut self) {
        let tombstone = |waiter: &Waiter| waiter.rank & TOMBSTONE != 0;
        while self.entries.front().is_some_and(tombstone) {
            self.entries.pop_front();
        }
        while self.entries.back().is_some_and(tombstone) {
            self.entries.pop_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a plain vector, with insertions and removals anywhere.
    #[test]
    fn waiters_are_found_by_rank_and_leave_in_order() {
        let (mut ranks, mut waiters, mut model) =
            (Ranks::default(), Waiters::default(), Vec::new());
        let mut used = Vec::new();
        let mut random = 7_u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let (what, which) = (random >> 60, (random >> 32) as usize);
            match what {
                0..=5 => {
                    let order = if what < 5 {
                        Order::Oldest
                    } else {
                        Order::Newest
                    };
                    let level = u8::try_from(which % 7 / 5).unwrap();
                    let place = Precedence { order, level };
                    let expected = ranks.peek(place);
                    let (rank, is_highest) = ranks.give(place);
                    assert_eq!(rank, expected);
                    assert_eq!(is_highest, used.iter().all(|one| *one < rank));
                    let behind = model.iter().filter(|one| **one > rank).count();
                    assert_eq!(waiters.behind(rank), behind);
                    assert_eq!(waiters.insert(rank), behind == 0);
                    used.push(rank);
                    model.insert(model.len() - behind, rank);
                }
                6 => {
                    let many = which % 3;
                    let last = model.drain(..many.min(model.len())).next_back();
                    assert_eq!(waiters.take_front(many, &mut Vec::new()), last);
                }
                7 => assert_eq!(waiters.pop_back().map(|(rank, _)| rank), model.pop()),
                _ if used.is_empty() => {}
                _ => {
                    let rank = used[which % used.len()];
                    let place = model.iter().position(|one| *one == rank);
                    assert_eq!(waiters.contains(rank), place.is_some());
                    if let (Some(place), 10..) = (place, what) {
                        model.remove(place);
                        assert!(waiters.remove(rank).is_some());
                        assert!(!waiters.contains(rank) && waiters.remove(rank).is_none());
                    }
                }
            }
            assert_eq!(waiters.len(), model.len());
            assert!(waiters.entries.len() <= 2 * model.len() + MIN_TOMBSTONES);
        }
        used.sort_unstable();
        used.dedup();
        assert!(
            used.len() > 5_000 && model.len() > 10,
            "too little happened"
        );
        assert!(waiters.drain().map(|(rank, _)| rank).eq(model));
    }
}
