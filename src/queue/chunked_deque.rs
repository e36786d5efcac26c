//! A double-ended queue in chunks.
//!
//! A line may grow to hundreds of thousands of waiters and be empty a second later. A single buffer
//! of that size is copied whenever it doubles, and half of it may be unused. Freeing it can be slow:
//! glibc merges all small free pieces as soon as it gets 64 KiB at once, which was a seventh of the
//! time of all releases. Chunks are of a size that allocators cache, and the tree that holds them
//! stays small up to a million entries.

use std::mem;

use super::chunk_tree::{Chunk, ChunkTree, Segment};

#[derive(Debug)]
pub(super) struct ChunkedDeque<T> {
    root: ChunkTree<ChunkTree<Chunk<T>>>,
    len: usize,
}

impl<T> Default for ChunkedDeque<T> {
    fn default() -> Self {
        Self {
            root: ChunkTree(std::collections::VecDeque::new()),
            len: 0,
        }
    }
}

impl<T> ChunkedDeque<T> {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn get(&self, at: usize) -> Option<&T> {
        self.root.get(at)
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.root.get_mut(at)
    }

    pub(super) fn front(&self) -> Option<&T> {
        self.root.front()
    }

    pub(super) fn back(&self) -> Option<&T> {
        self.root.back()
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        (0..self.len).filter_map(|at| self.get(at))
    }

    /// Calls `change` for each entry from `from` on.
    pub(super) fn for_each_from(&mut self, from: usize, mut change: impl FnMut(&mut T)) {
        for at in from..self.len {
            self.get_mut(at).into_iter().for_each(&mut change);
        }
    }

    /// The index of the first entry for which `goes_before` is false, as for slices.
    pub(super) fn partition_point(&self, goes_before: impl Fn(&T) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let middle = low.midpoint(high);
            if self.get(middle).is_some_and(&goes_before) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Prefetches the first `many` entries.
    pub(super) fn prefetch(&self, many: usize) {
        self.root.prefetch(many);
    }

    pub(super) fn push_back(&mut self, entry: T) {
        self.len += 1;
        self.root.push_back(entry);
    }

    pub(super) fn push_front(&mut self, entry: T) {
        self.len += 1;
        self.root.push_front(entry);
    }

    pub(super) fn pop_back(&mut self) -> Option<T> {
        self.len = self.len.saturating_sub(1);
        self.root.pop_back()
    }

    pub(super) fn pop_front(&mut self) -> Option<T> {
        self.len = self.len.saturating_sub(1);
        self.root.pop_front()
    }

    /// Removes entries from the front while they are `wanted`.
    pub(super) fn take_while(
        &mut self,
        mut wanted: impl FnMut(&T) -> bool,
        mut taken: impl FnMut(T),
    ) {
        let mut many = 0;
        self.root.take_while(&mut wanted, &mut |entry| {
            many += 1;
            taken(entry);
        });
        self.len -= many;
    }

    /// Inserts at `at`. Moves every entry behind it.
    pub(super) fn insert(&mut self, at: usize, mut entry: T) {
        self.for_each_from(at, |behind| mem::swap(behind, &mut entry));
        self.push_back(entry);
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        for _ in 0..self.len {
            if let Some(entry) = self.pop_front().filter(&keep) {
                self.push_back(entry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::super::chunk_tree::FANOUT;
    use super::*;

    /// Against `VecDeque`.
    #[test]
    fn behaves_like_vec_deque() {
        let (mut deque, mut model) = (ChunkedDeque::default(), VecDeque::new());
        let mut random = 11_u64;
        let mut longest = 0;
        for entry in 0..60_000_u32 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let (what, which) = (random >> 59, (random >> 32) as usize);
            let at = which % (model.len() + 1);
            // It grows and shrinks in turn.
            let grows = entry / 20_000 % 2 == 0;
            match (what, grows) {
                (0..=11, true) | (0..=5, false) => {
                    deque.push_back(entry);
                    model.push_back(entry);
                }
                (12..=19, true) | (6..=8, false) => {
                    deque.push_front(entry);
                    model.push_front(entry);
                }
                (20 | 21, _) => {
                    deque.insert(at, entry);
                    model.insert(at, entry);
                }
                (22, _) if which.is_multiple_of(64) => {
                    deque.retain(|entry| entry % 3 > 0);
                    model.retain(|entry| entry % 3 > 0);
                }
                (22, _) => {
                    deque.for_each_from(at, |entry| *entry += 1);
                    model.range_mut(at..).for_each(|entry| *entry += 1);
                }
                (23, _) => {
                    for one in [model.get_mut(at), deque.get_mut(at)].into_iter().flatten() {
                        *one = entry;
                    }
                }
                (24, _) => {
                    let mut wanted = |entry: &u32| entry % 7 > 0;
                    let mut taken = Vec::new();
                    deque.take_while(&mut wanted, |entry| taken.push(entry));
                    let many = model.iter().take_while(|entry| wanted(entry)).count();
                    assert!(model.drain(..many).eq(taken));
                }
                (25..=28, true) | (9..=25, false) => {
                    assert_eq!(deque.pop_front(), model.pop_front());
                }
                _ => assert_eq!(deque.pop_back(), model.pop_back()),
            }
            assert_eq!(deque.len(), model.len());
            assert_eq!(deque.is_empty(), model.is_empty());
            assert_eq!(deque.front(), model.front());
            assert_eq!(deque.back(), model.back());
            assert_eq!(deque.get(at), model.get(at));
            longest = longest.max(model.len());
            if entry % 64 == 0 {
                assert!(deque.iter().eq(&model));
                assert!(deque.iter().rev().eq(model.iter().rev()));
            }
        }
        assert!(longest > 3 * FANOUT * FANOUT, "too little happened");
    }

    #[test]
    fn partition_point_searches_sorted_entries() {
        let mut deque = ChunkedDeque::default();
        for entry in 0..1_000_u32 {
            deque.push_back(2 * entry);
        }
        for gone in 0..=1_000 {
            for wanted in [
                0,
                2 * gone,
                2 * gone + 1,
                2 * gone + 2,
                63,
                64,
                1_999,
                2_001,
            ] {
                let found = deque.partition_point(|entry| *entry < wanted);
                assert_eq!(found, deque.iter().filter(|entry| **entry < wanted).count());
            }
            deque.pop_front();
        }
    }

    #[test]
    fn allocations_stay_small_and_are_freed() {
        let mut deque = ChunkedDeque::default();
        for entry in 0..1_000_000_u64 {
            deque.push_back([entry; 3]);
        }
        // From 64 KiB on, glibc consolidates.
        let ChunkTree(root) = &deque.root;
        assert!(root.capacity() * size_of::<ChunkTree<Chunk<[u64; 3]>>>() < 65_536);
        for ChunkTree(chunks) in root {
            assert!(chunks.capacity() * size_of::<Chunk<[u64; 3]>>() <= 1_024);
            for Chunk(chunk) in chunks {
                assert!(chunk.capacity() * size_of::<[u64; 3]>() <= 1_024);
            }
        }
        for _ in 0..500_000 {
            deque.pop_front();
            deque.pop_back();
        }
        assert_eq!(deque.root.0.len(), 0);
    }
}
