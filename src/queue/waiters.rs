//! Who waits in a line, in order, each found again by a rank.
//!
//! The row is sorted by rank, and as long as nobody leaves from its middle, a rank says where
//! somebody stands. Who leaves from the middle leaves a gap, or all behind would have to be moved;
//! when more than half of the row are gaps it closes up. From then on, and where the newest go
//! first, a rank is searched for.

use std::task::Waker;

use super::chunked_deque::ChunkedDeque;

/// Who has the lower one goes first. No rank of a line is given twice.
pub(super) type Rank = u64;

/// In the middle of those below [`TOMBSTONE`].
const INITIAL_RANK: Rank = 1 << 62;

/// Who had this rank has left.
const TOMBSTONE: Rank = 1 << 63;

/// So many gaps need not be closed.
const MIN_TOMBSTONES: usize = 32;

#[derive(Debug)]
pub(super) struct Waiters {
    /// Begins and ends with somebody who waits.
    row: ChunkedDeque<Waiter>,
    /// How many of them wait.
    waiting: usize,
    /// The ranks that were given are these and those between.
    lowest: Rank,
    above: Rank,
}

#[derive(Debug)]
struct Waiter {
    rank: Rank,
    /// `None` as long as it was not polled.
    waker: Option<Waker>,
}

impl Default for Waiters {
    fn default() -> Self {
        Self {
            row: ChunkedDeque::default(),
            waiting: 0,
            lowest: INITIAL_RANK,
            above: INITIAL_RANK,
        }
    }
}

impl Waiters {
    /// How many wait.
    pub(super) const fn len(&self) -> usize {
        self.waiting
    }

    pub(super) fn push_back(&mut self) -> Rank {
        let rank = self.above;
        self.above += 1;
        self.waiting += 1;
        self.row.push_back(Waiter { rank, waker: None });
        rank
    }

    pub(super) fn push_front(&mut self) -> Rank {
        self.lowest -= 1;
        let rank = self.lowest;
        self.waiting += 1;
        self.row.push_front(Waiter { rank, waker: None });
        rank
    }

    /// Takes out so many of the first, whose wakers go to `woken`; answers the rank of the last one.
    pub(super) fn take(&mut self, many: usize, woken: &mut Vec<Waker>) -> Option<Rank> {
        let many = many.min(self.waiting);
        self.waiting -= many;
        let (mut left, mut last) = (many, None);
        let wanted = |waiter: &Waiter| {
            let gap = waiter.rank & TOMBSTONE != 0;
            if left == 0 {
                return gap;
            }
            left -= usize::from(!gap);
            true
        };
        self.row.take_while(wanted, |waiter| {
            if waiter.rank & TOMBSTONE == 0 {
                last = Some(waiter.rank);
                woken.extend(waiter.waker);
            }
        });
        last
    }

    /// Lets the memory of the first so many come.
    pub(super) fn fetch(&self, many: usize) {
        self.row.fetch(many);
    }

    pub(super) fn pop_back(&mut self) -> Option<(Rank, Option<Waker>)> {
        let Waiter { rank, waker } = self.row.pop_back()?;
        self.waiting -= 1;
        self.trim();
        Some((rank, waker))
    }

    /// Where in the row the one of this rank stands, if it waits.
    pub(super) fn find(&self, rank: Rank) -> Option<usize> {
        let first = self.row.front()?.rank;
        let guess = usize::try_from(rank.checked_sub(first)?).ok()?;
        let found = match self.row.get(guess) {
            Some(waiter) if waiter.rank & !TOMBSTONE == rank => guess,
            _ => {
                let is_before = |waiter: &Waiter| waiter.rank & !TOMBSTONE < rank;
                self.row.partition_point(is_before)
            }
        };
        (self.row.get(found)?.rank == rank).then_some(found)
    }

    /// What wakes the one who stands there.
    pub(super) fn waker(&mut self, at: usize) -> Option<&mut Option<Waker>> {
        Some(&mut self.row.get_mut(at)?.waker)
    }

    /// Takes out what wakes each of them.
    pub(super) fn wake_all(&mut self, woken: &mut Vec<Waker>) {
        self.row
            .change(0, |waiter| woken.extend(waiter.waker.take()));
    }

    /// Whether nobody is behind the one who stands there.
    pub(super) fn is_last(&self, at: usize) -> bool {
        at + 1 == self.row.len()
    }

    /// How many wait before the one who stands there.
    pub(super) fn before(&self, at: usize) -> usize {
        let before = self.row.iter().take(at);
        before.filter(|waiter| waiter.rank & TOMBSTONE == 0).count()
    }

    /// Takes out the one who stands there.
    pub(super) fn remove(&mut self, at: usize) -> Option<Waker> {
        let waiter = self.row.get_mut(at)?;
        waiter.rank |= TOMBSTONE;
        let waker = waiter.waker.take();
        self.waiting -= 1;
        self.trim();
        if self.row.len() > 2 * self.waiting + MIN_TOMBSTONES {
            self.row.retain(|waiter| waiter.rank & TOMBSTONE == 0);
        }
        waker
    }

    /// Takes gaps off both ends.
    fn trim(&mut self) {
        let gap = |waiter: &Waiter| waiter.rank & TOMBSTONE != 0;
        while self.row.front().is_some_and(gap) {
            self.row.pop_front();
        }
        while self.row.back().is_some_and(gap) {
            self.row.pop_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a plain vector, while people come at either end and leave from anywhere.
    #[test]
    fn waiters_are_found_by_rank_and_leave_in_order() {
        let (mut waiters, mut model) = (Waiters::default(), Vec::new());
        let mut given = Vec::new();
        let mut random = 7_u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let (what, which) = (random >> 60, (random >> 32) as usize);
            match what {
                0..=4 => {
                    given.push(waiters.push_back());
                    model.push(given[given.len() - 1]);
                }
                5 => {
                    given.push(waiters.push_front());
                    model.insert(0, given[given.len() - 1]);
                }
                6 => {
                    let many = which % 3;
                    let gone = model.drain(..many.min(model.len())).next_back();
                    assert_eq!(waiters.take(many, &mut Vec::new()), gone);
                }
                7 => assert_eq!(waiters.pop_back().map(|(rank, _)| rank), model.pop()),
                _ if given.is_empty() => {}
                _ => {
                    let rank = given[which % given.len()];
                    let place = model.iter().position(|one| *one == rank);
                    let found = waiters.find(rank);
                    assert_eq!(found.map(|at| waiters.before(at)), place);
                    if let (Some(at), Some(place), 10..) = (found, place, what) {
                        assert_eq!(waiters.is_last(at), place + 1 == model.len());
                        model.remove(place);
                        waiters.remove(at);
                        assert_eq!(waiters.find(rank), None);
                    }
                }
            }
            assert_eq!(waiters.len(), model.len());
            assert!(waiters.row.len() <= 2 * model.len() + MIN_TOMBSTONES);
        }
        given.sort_unstable();
        given.dedup();
        assert!(
            given.len() > 5_000 && model.len() > 10,
            "too little happened"
        );
    }

    #[test]
    fn waiter_is_three_words() {
        assert_eq!(size_of::<Waiter>(), 24);
    }
}
