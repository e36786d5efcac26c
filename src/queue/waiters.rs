//! The waiters of a line of equal costs, in order, found by rank.
//!
//! The entries are sorted by rank. As long as none is removed from the middle, the index follows
//! from the rank. A removal from the middle leaves a tombstone, or all entries behind it would have
//! to be moved. Tombstones are dropped once more than half of the entries are tombstones. From then
//! on, and if ranks are not contiguous, the rank is found by binary search.

use std::collections::VecDeque;
use std::task::Waker;

/// The order of waiters: the lowest rank is released first. No rank of a line is used twice.
pub(super) type Rank = u64;

/// The middle of the ranks below [`TOMBSTONE`].
const INITIAL_RANK: Rank = 1 << 62;

/// Set in the rank of an entry whose waiter has left.
const TOMBSTONE: Rank = 1 << 63;

/// This many tombstones are not worth a compaction.
const MIN_TOMBSTONES: usize = 32;

/// The ranks that a line has used: these two and those in between.
#[derive(Debug)]
pub(super) struct Ranks {
    front: Rank,
    next: Rank,
}

impl Default for Ranks {
    fn default() -> Self {
        Self {
            front: INITIAL_RANK,
            next: INITIAL_RANK,
        }
    }
}

impl Ranks {
    /// A rank after all others.
    pub(super) const fn back(&mut self) -> Rank {
        self.next += 1;
        self.next - 1
    }

    /// A rank before all others.
    pub(super) const fn front(&mut self) -> Rank {
        self.front -= 1;
        self.front
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

    /// `rank` is higher than all others.
    pub(super) fn push_back(&mut self, rank: Rank) {
        self.live += 1;
        self.entries.push_back(Waiter { rank, waker: None });
    }

    /// `rank` is lower than all others.
    pub(super) fn push_front(&mut self, rank: Rank) {
        self.live += 1;
        self.entries.push_front(Waiter { rank, waker: None });
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
            _ => {
                let is_before = |waiter: &Waiter| waiter.rank & !TOMBSTONE < rank;
                self.entries.partition_point(is_before)
            }
        };
        (self.entries.get(found)?.rank == rank).then_some(found)
    }

    /// The waker of the waiter with this rank.
    pub(super) fn waker_mut(&mut self, rank: Rank) -> Option<&mut Option<Waker>> {
        let at = self.find(rank)?;
        Some(&mut self.entries.get_mut(at)?.waker)
    }

    /// Takes the wakers of all waiters.
    pub(super) fn take_wakers(&mut self, wakers: &mut Vec<Waker>) {
        let all = self.entries.iter_mut();
        wakers.extend(all.filter_map(|waiter| waiter.waker.take()));
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

    /// Against a plain vector, with insertions at both ends and removals anywhere.
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
                0..=4 => {
                    used.push(ranks.back());
                    waiters.push_back(used[used.len() - 1]);
                    model.push(used[used.len() - 1]);
                }
                5 => {
                    used.push(ranks.front());
                    waiters.push_front(used[used.len() - 1]);
                    model.insert(0, used[used.len() - 1]);
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
