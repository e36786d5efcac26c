//! The entries of one shard, by the hash of the key.
//!
//! The first few are in a list that is searched from the front: while few requests are in flight,
//! that takes half the time of a hash map.

use std::{collections::HashMap, hash::BuildHasherDefault};

use crate::queue::PassThroughHasher;

/// How many entries are in the list.
const NEAR: usize = 8;

/// The map keeps the memory of this many entries when it is empty.
const KEPT: usize = 64;

pub(super) struct Entries<T> {
    near: Vec<(u64, T)>,
    /// Those that came when the list was full.
    far: HashMap<u64, T, BuildHasherDefault<PassThroughHasher>>,
}

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self {
            near: Vec::new(),
            far: HashMap::default(),
        }
    }
}

impl<T> Entries<T> {
    pub(super) fn len(&self) -> usize {
        self.near.len() + self.far.len()
    }

    #[inline]
    fn near_index(&self, id: u64) -> Option<usize> {
        self.near.iter().position(|(other, _)| *other == id)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        match self.near_index(id) {
            Some(at) => Some(&mut self.near[at].1),
            None if self.far.is_empty() => None,
            None => self.far.get_mut(&id),
        }
    }

    /// Adds an entry for an `id` that has none.
    #[inline]
    pub(super) fn insert(&mut self, id: u64, entry: T) -> &mut T {
        if self.near.len() < NEAR {
            let at = self.near.len();
            self.near.push((id, entry));
            &mut self.near[at].1
        } else {
            self.far.entry(id).or_insert(entry)
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, id: u64) {
        if let Some(at) = self.near_index(id) {
            self.near.swap_remove(at);
        } else {
            self.remove_far(id);
        }
    }

    /// Frees memory when the map has become much smaller. That happens at most once per so many
    /// removals that it costs each of them next to nothing.
    #[inline(never)]
    fn remove_far(&mut self, id: u64) {
        let far = &mut self.far;
        far.remove(&id);
        if far.capacity() > KEPT && far.len() < far.capacity() / 8 {
            far.shrink_to((far.capacity() / 4).max(KEPT));
        }
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let near = self.near.iter_mut().map(|(_, entry)| entry);
        near.chain(self.far.values_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a plain map, through times with few and with many entries.
    #[test]
    fn entries_are_found_wherever_they_are_and_memory_is_freed() {
        let (mut entries, mut model) = (Entries::default(), HashMap::new());
        let (mut random, mut most) = (3_u64, 0);
        for step in 0..200_000_u64 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let id = random >> 53;
            let crowded = step / 20_000 % 2 == 0;
            let adds = (random >> 40 & 7) < if crowded { 6 } else { 2 };
            assert_eq!(entries.get_mut(id).copied(), model.get(&id).copied());
            if adds && !model.contains_key(&id) {
                *entries.insert(id, step) += 1;
                model.insert(id, step + 1);
            } else if !adds {
                entries.remove(id);
                model.remove(&id);
            }
            assert_eq!(entries.len(), model.len());
            most = most.max(model.len());
        }
        assert!(most > 1_000, "the map was hardly used");
        let mut left: Vec<_> = entries.values_mut().map(|entry| *entry).collect();
        let mut expected: Vec<_> = model.values().copied().collect();
        left.sort_unstable();
        expected.sort_unstable();
        assert_eq!(left, expected);
        for id in model.keys() {
            entries.remove(*id);
        }
        assert_eq!(entries.len(), 0);
        assert!(entries.far.capacity() <= 2 * KEPT);
    }
}
