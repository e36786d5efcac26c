//! A double-ended queue in blocks.
//!
//! A line may grow to hundreds of thousands and be gone a second later. A single buffer of that size
//! is copied whenever it doubles, half of it may be empty, and when it is freed an allocator may take
//! that for a time to tidy up: glibc joins all small pieces that it kept at hand as soon as it gets
//! 64 KiB in one, which was a seventh of the time of all the releases before. ChunkedDeque are of a size
//! that allocators keep at hand, and what holds them stays small, up to a million entries.

use std::collections::VecDeque;
use std::mem;

use super::prefetch::fetch;

/// So many entries are in a block, and so many blocks on a shelf.
const FANOUT: usize = 32;

#[derive(Debug)]
pub(super) struct ChunkedDeque<T> {
    root: ChunkTree<ChunkTree<Chunk<T>>>,
    len: usize,
}

#[derive(Debug)]
struct Chunk<T>(VecDeque<T>);

/// None of its parts is empty, and all but the first and the last are full.
#[derive(Debug)]
struct ChunkTree<P>(VecDeque<P>);

/// What a shelf is made of.
trait Segment {
    type Entry;

    /// So many entries are in it when it is full.
    const CAPACITY: usize;

    /// With room for so many to begin with.
    fn of(entry: Self::Entry, room: usize) -> Self;
    fn len(&self) -> usize;
    fn get(&self, at: usize) -> Option<&Self::Entry>;
    fn get_mut(&mut self, at: usize) -> Option<&mut Self::Entry>;
    fn push_back(&mut self, entry: Self::Entry);
    fn push_front(&mut self, entry: Self::Entry);
    fn pop_back(&mut self) -> Option<Self::Entry>;
    fn pop_front(&mut self) -> Option<Self::Entry>;
    fn front(&self) -> Option<&Self::Entry>;
    fn back(&self) -> Option<&Self::Entry>;

    /// Lets the first so many come. Answers how many of them are not in it.
    fn fetch(&self, many: usize) -> usize;

    /// Takes the first out as long as they are `wanted`.
    fn take_while(
        &mut self,
        wanted: &mut impl FnMut(&Self::Entry) -> bool,
        taken: &mut impl FnMut(Self::Entry),
    );
}

impl<T> Default for ChunkedDeque<T> {
    fn default() -> Self {
        Self {
            root: ChunkTree(VecDeque::new()),
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

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        (0..self.len).filter_map(|at| self.get(at))
    }

    /// Changes each from `from` on.
    pub(super) fn change(&mut self, from: usize, mut change: impl FnMut(&mut T)) {
        for at in from..self.len {
            self.get_mut(at).into_iter().for_each(&mut change);
        }
    }

    /// Where the first is for which `goes_before` does not hold; before it, it holds for all.
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

    /// Lets the memory of the first so many come.
    pub(super) fn fetch(&self, many: usize) {
        self.root.fetch(many);
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

    /// Takes the first out as long as they are `wanted`.
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

    /// Moves all from `at` on.
    pub(super) fn insert(&mut self, at: usize, mut entry: T) {
        self.change(at, |behind| mem::swap(behind, &mut entry));
        self.push_back(entry);
    }

    /// Moves all behind `at`.
    pub(super) fn remove(&mut self, at: usize) -> Option<T> {
        if at >= self.len {
            return None;
        }
        let mut entry = self.pop_back()?;
        for before in (at..self.len).rev() {
            mem::swap(self.get_mut(before)?, &mut entry);
        }
        Some(entry)
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        for _ in 0..self.len {
            if let Some(entry) = self.pop_front().filter(&keep) {
                self.push_back(entry);
            }
        }
    }
}

impl<P: Segment> ChunkTree<P> {
    /// The part, and where in it.
    fn locate(&self, at: usize) -> (usize, usize) {
        match at.checked_sub(self.0.front().map_or(0, P::len)) {
            Some(behind) => (1 + behind / P::CAPACITY, behind % P::CAPACITY),
            None => (0, at),
        }
    }
}

impl<P: Segment> Segment for ChunkTree<P> {
    type Entry = P::Entry;

    const CAPACITY: usize = FANOUT * P::CAPACITY;

    fn of(entry: P::Entry, room: usize) -> Self {
        let mut parts = VecDeque::with_capacity(room.div_ceil(P::CAPACITY));
        parts.push_back(P::of(entry, room.min(P::CAPACITY)));
        Self(parts)
    }

    fn len(&self) -> usize {
        let first = self.0.front().map_or(0, P::len);
        match self.0.len() {
            0 | 1 => first,
            parts => first + (parts - 2) * P::CAPACITY + self.0.back().map_or(0, P::len),
        }
    }

    fn get(&self, at: usize) -> Option<&P::Entry> {
        let (part, within) = self.locate(at);
        self.0.get(part)?.get(within)
    }

    fn get_mut(&mut self, at: usize) -> Option<&mut P::Entry> {
        let (part, within) = self.locate(at);
        self.0.get_mut(part)?.get_mut(within)
    }

    fn push_back(&mut self, entry: P::Entry) {
        match self.0.back_mut() {
            Some(last) if last.len() < P::CAPACITY => last.push_back(entry),
            last => {
                let room = last.map_or(1, |_| P::CAPACITY);
                self.0.push_back(P::of(entry, room));
            }
        }
    }

    fn push_front(&mut self, entry: P::Entry) {
        match self.0.front_mut() {
            Some(first) if first.len() < P::CAPACITY => first.push_front(entry),
            first => {
                let room = first.map_or(1, |_| P::CAPACITY);
                self.0.push_front(P::of(entry, room));
            }
        }
    }

    fn pop_back(&mut self) -> Option<P::Entry> {
        let last = self.0.back_mut()?;
        let entry = last.pop_back();
        if last.len() == 0 {
            self.0.pop_back();
        }
        entry
    }

    fn pop_front(&mut self) -> Option<P::Entry> {
        let first = self.0.front_mut()?;
        let entry = first.pop_front();
        if first.len() == 0 {
            self.0.pop_front();
        }
        entry
    }

    fn front(&self) -> Option<&P::Entry> {
        self.0.front()?.front()
    }

    fn back(&self) -> Option<&P::Entry> {
        self.0.back()?.back()
    }

    fn fetch(&self, mut many: usize) -> usize {
        for part in &self.0 {
            if many == 0 {
                break;
            }
            many = part.fetch(many);
        }
        many
    }

    fn take_while(
        &mut self,
        wanted: &mut impl FnMut(&P::Entry) -> bool,
        taken: &mut impl FnMut(P::Entry),
    ) {
        while let Some(first) = self.0.front_mut() {
            first.take_while(wanted, taken);
            if first.len() > 0 {
                return;
            }
            self.0.pop_front();
        }
    }
}

impl<T> Segment for Chunk<T> {
    type Entry = T;

    const CAPACITY: usize = FANOUT;

    fn of(entry: T, room: usize) -> Self {
        let mut entries = VecDeque::with_capacity(room);
        entries.push_back(entry);
        Self(entries)
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, at: usize) -> Option<&T> {
        self.0.get(at)
    }

    fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.0.get_mut(at)
    }

    fn push_back(&mut self, entry: T) {
        self.0.push_back(entry);
    }

    fn push_front(&mut self, entry: T) {
        self.0.push_front(entry);
    }

    fn pop_back(&mut self) -> Option<T> {
        self.0.pop_back()
    }

    fn pop_front(&mut self) -> Option<T> {
        self.0.pop_front()
    }

    fn front(&self) -> Option<&T> {
        self.0.front()
    }

    fn back(&self) -> Option<&T> {
        self.0.back()
    }

    fn fetch(&self, many: usize) -> usize {
        let (head, tail) = self.0.as_slices();
        let of_head = &head[..many.min(head.len())];
        let many = many - of_head.len();
        let of_tail = &tail[..many.min(tail.len())];
        for entries in [of_head, of_tail] {
            fetch(entries.as_ptr(), size_of_val(entries));
        }
        many - of_tail.len()
    }

    fn take_while(&mut self, wanted: &mut impl FnMut(&T) -> bool, taken: &mut impl FnMut(T)) {
        let many = self.0.iter().take_while(|entry| wanted(entry)).count();
        self.0.drain(..many).for_each(taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a single buffer.
    #[test]
    fn behaves_like_vec_deque() {
        let (mut blocks, mut model) = (ChunkedDeque::default(), VecDeque::new());
        let mut random = 11_u64;
        let mut longest = 0;
        for entry in 0..60_000_u32 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let (what, which) = (random >> 59, (random >> 32) as usize);
            let at = which % (model.len() + 1);
            // It grows for a while and then shrinks.
            let grows = entry / 20_000 % 2 == 0;
            match (what, grows) {
                (0..=11, true) | (0..=5, false) => {
                    blocks.push_back(entry);
                    model.push_back(entry);
                }
                (12..=19, true) | (6..=8, false) => {
                    blocks.push_front(entry);
                    model.push_front(entry);
                }
                (20, _) => {
                    blocks.insert(at, entry);
                    model.insert(at, entry);
                }
                (21, _) => assert_eq!(blocks.remove(at), model.remove(at)),
                (22, _) if which.is_multiple_of(64) => {
                    blocks.retain(|entry| entry % 3 > 0);
                    model.retain(|entry| entry % 3 > 0);
                }
                (22, _) => {
                    blocks.change(at, |entry| *entry += 1);
                    model.range_mut(at..).for_each(|entry| *entry += 1);
                }
                (23, _) => {
                    for one in [model.get_mut(at), blocks.get_mut(at)]
                        .into_iter()
                        .flatten()
                    {
                        *one = entry;
                    }
                }
                (24, _) => {
                    let mut wanted = |entry: &u32| entry % 7 > 0;
                    let mut taken = Vec::new();
                    blocks.take_while(&mut wanted, |entry| taken.push(entry));
                    let many = model.iter().take_while(|entry| wanted(entry)).count();
                    assert!(model.drain(..many).eq(taken));
                }
                (25..=28, true) | (9..=25, false) => {
                    assert_eq!(blocks.pop_front(), model.pop_front());
                }
                _ => assert_eq!(blocks.pop_back(), model.pop_back()),
            }
            assert_eq!(blocks.len(), model.len());
            assert_eq!(blocks.is_empty(), model.is_empty());
            assert_eq!(blocks.front(), model.front());
            assert_eq!(blocks.back(), model.back());
            assert_eq!(blocks.get(at), model.get(at));
            longest = longest.max(model.len());
            if entry % 64 == 0 {
                assert!(blocks.iter().eq(&model));
                assert!(blocks.iter().rev().eq(model.iter().rev()));
            }
        }
        assert!(longest > 3 * FANOUT * FANOUT, "too little happened");
    }

    #[test]
    fn partition_point_searches_sorted_entries() {
        let mut blocks = ChunkedDeque::default();
        for entry in 0..1_000_u32 {
            blocks.push_back(2 * entry);
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
                let found = blocks.partition_point(|entry| *entry < wanted);
                assert_eq!(
                    found,
                    blocks.iter().filter(|entry| **entry < wanted).count()
                );
            }
            blocks.pop_front();
        }
    }

    #[test]
    fn allocations_stay_small_and_are_freed() {
        let mut blocks = ChunkedDeque::default();
        for entry in 0..1_000_000_u64 {
            blocks.push_back([entry; 3]);
        }
        // Of 64 KiB glibc tidies up.
        let ChunkTree(root) = &blocks.root;
        assert!(root.capacity() * size_of::<ChunkTree<Chunk<[u64; 3]>>>() < 65_536);
        for ChunkTree(shelf) in root {
            assert!(shelf.capacity() * size_of::<Chunk<[u64; 3]>>() <= 1_024);
            for Chunk(block) in shelf {
                assert!(block.capacity() * size_of::<[u64; 3]>() <= 1_024);
            }
        }
        for _ in 0..500_000 {
            blocks.pop_front();
            blocks.pop_back();
        }
        assert_eq!(blocks.root.0.len(), 0);
    }
}
