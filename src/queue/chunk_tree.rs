//! The tree behind [`ChunkedDeque`](super::chunked_deque::ChunkedDeque): nodes of 32, entries in the
//! leaves.

use std::collections::VecDeque;

use crate::prefetch::prefetch;

/// Entries per chunk, and chunks per tree.
pub(super) const FANOUT: usize = 32;

#[derive(Debug)]
pub(super) struct Chunk<T>(pub(super) VecDeque<T>);

/// No child is empty, and all but the first and the last are full.
#[derive(Debug)]
pub(super) struct ChunkTree<P>(pub(super) VecDeque<P>);

/// A leaf or an inner node.
pub(super) trait Segment {
    type Entry;

    /// The number of entries of a full one.
    const CAPACITY: usize;

    /// A segment with one entry, allocated for `capacity` of them.
    fn with_entry(entry: Self::Entry, capacity: usize) -> Self;
    fn len(&self) -> usize;
    fn get(&self, at: usize) -> Option<&Self::Entry>;
    fn get_mut(&mut self, at: usize) -> Option<&mut Self::Entry>;
    fn push_back(&mut self, entry: Self::Entry);
    fn push_front(&mut self, entry: Self::Entry);
    fn pop_back(&mut self) -> Option<Self::Entry>;
    fn pop_front(&mut self) -> Option<Self::Entry>;
    fn front(&self) -> Option<&Self::Entry>;
    fn back(&self) -> Option<&Self::Entry>;

    /// Prefetches the first `many` entries. Returns how many of them are beyond this segment.
    fn prefetch(&self, many: usize) -> usize;

    /// Removes entries from the front while they are `wanted`.
    fn take_while(
        &mut self,
        wanted: &mut impl FnMut(&Self::Entry) -> bool,
        taken: &mut impl FnMut(Self::Entry),
    );
}

impl<P: Segment> ChunkTree<P> {
    /// The child that holds the entry at `at`, and the entry's index in it.
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

    fn with_entry(entry: P::Entry, capacity: usize) -> Self {
        let mut children = VecDeque::with_capacity(capacity.div_ceil(P::CAPACITY));
        children.push_back(P::with_entry(entry, capacity.min(P::CAPACITY)));
        Self(children)
    }

    fn len(&self) -> usize {
        let first = self.0.front().map_or(0, P::len);
        match self.0.len() {
            0 | 1 => first,
            children => first + (children - 2) * P::CAPACITY + self.0.back().map_or(0, P::len),
        }
    }

    fn get(&self, at: usize) -> Option<&P::Entry> {
        let (child, within) = self.locate(at);
        self.0.get(child)?.get(within)
    }

    fn get_mut(&mut self, at: usize) -> Option<&mut P::Entry> {
        let (child, within) = self.locate(at);
        self.0.get_mut(child)?.get_mut(within)
    }

    fn push_back(&mut self, entry: P::Entry) {
        match self.0.back_mut() {
            Some(last) if last.len() < P::CAPACITY => last.push_back(entry),
            last => {
                let capacity = last.map_or(1, |_| P::CAPACITY);
                self.0.push_back(P::with_entry(entry, capacity));
            }
        }
    }

    fn push_front(&mut self, entry: P::Entry) {
        match self.0.front_mut() {
            Some(first) if first.len() < P::CAPACITY => first.push_front(entry),
            first => {
                let capacity = first.map_or(1, |_| P::CAPACITY);
                self.0.push_front(P::with_entry(entry, capacity));
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

    fn prefetch(&self, mut many: usize) -> usize {
        for child in &self.0 {
            if many == 0 {
                break;
            }
            many = child.prefetch(many);
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

    fn with_entry(entry: T, capacity: usize) -> Self {
        let mut entries = VecDeque::with_capacity(capacity);
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

    fn prefetch(&self, many: usize) -> usize {
        let (head, tail) = self.0.as_slices();
        let of_head = &head[..many.min(head.len())];
        let many = many - of_head.len();
        let of_tail = &tail[..many.min(tail.len())];
        for entries in [of_head, of_tail] {
            prefetch(entries.as_ptr(), size_of_val(entries));
        }
        many - of_tail.len()
    }

    fn take_while(&mut self, wanted: &mut impl FnMut(&T) -> bool, taken: &mut impl FnMut(T)) {
        let many = self.0.iter().take_while(|entry| wanted(entry)).count();
        self.0.drain(..many).for_each(taken);
    }
}
