//! Sorted maps that share the code of one tree.
//!
//! Each type of `BTreeMap` adds about 15 KB to a program. The maps of a line differ only in their
//! values, so one tree holds places in a list of values instead.

use super::sorted_pairs::SortedPairs;

/// A map from numbers to values, in the order of the numbers.
#[derive(Debug)]
pub(super) struct SortedMap<T> {
    /// Pairs of a key and zero, with the place of its value.
    places: SortedPairs,
    values: Vec<Option<T>>,
    free: Vec<u64>,
}

impl<T> Default for SortedMap<T> {
    fn default() -> Self {
        Self {
            places: SortedPairs::default(),
            values: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> SortedMap<T> {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn contains(&self, key: u64) -> bool {
        self.places.get((key, 0)).is_some()
    }

    /// Adds a value. There must be none with this key.
    pub(super) fn insert(&mut self, key: u64, value: T) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.values.push(None);
            self.values.len() as u64 - 1
        });
        if let Some(free) = self.values.get_mut(index(place)) {
            *free = Some(value);
        }
        self.places.insert((key, 0), place);
    }

    pub(super) fn remove(&mut self, key: u64) -> Option<T> {
        let place = self.places.remove((key, 0))?;
        self.free.push(place);
        self.values.get_mut(index(place))?.take()
    }

    pub(super) fn get(&self, key: u64) -> Option<&T> {
        self.value(self.places.get((key, 0))?)
    }

    pub(super) fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        let place = self.places.get((key, 0))?;
        self.values.get_mut(index(place))?.as_mut()
    }

    pub(super) fn first(&self) -> Option<(u64, &T)> {
        self.entry(self.places.next((0, 0))?)
    }

    pub(super) fn last(&self) -> Option<(u64, &T)> {
        self.entry(self.places.previous((u64::MAX, 0))?)
    }

    /// The entry before `key`.
    pub(super) fn before(&self, key: u64) -> Option<(u64, &T)> {
        self.entry(self.places.previous((key.checked_sub(1)?, 0))?)
    }

    /// The entry after `key`.
    pub(super) fn after_mut(&mut self, key: u64) -> Option<&mut T> {
        let (_, place) = self.places.next((key, 1))?;
        self.values.get_mut(index(place))?.as_mut()
    }

    /// Calls `change` for all values, in order.
    pub(super) fn for_each_mut(&mut self, mut change: impl FnMut(&mut T)) {
        self.places.for_each(&mut |(_, place)| {
            if let Some(Some(value)) = self.values.get_mut(index(place)) {
                change(value);
            }
        });
    }

    #[cfg(test)]
    pub(super) fn keys(&self) -> impl Iterator<Item = u64> {
        self.places.entries().into_iter().map(|((key, _), _)| key)
    }

    #[cfg(test)]
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        let places = self.places.entries().into_iter();
        places.filter_map(|(_, place)| self.value(place))
    }

    fn entry(&self, ((key, _), place): ((u64, u64), u64)) -> Option<(u64, &T)> {
        Some((key, self.value(place)?))
    }

    fn value(&self, place: u64) -> Option<&T> {
        self.values.get(index(place))?.as_ref()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a place was the length of a list"
)]
const fn index(place: u64) -> usize {
    place as usize
}

#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod tests {
    use std::collections::BTreeMap;

    use super::super::sorted_pairs::tests::assert_tree;
    use super::*;

    #[test]
    fn a_sorted_map_behaves_like_a_btree_map() {
        let (mut map, mut model) = (SortedMap::default(), BTreeMap::new());
        let mut random = 7_u64;
        let mut height = 0;
        for step in 0..30_000_u64 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let any = (random >> 33) % 1_000;
            let inserts = random >> 62;
            // Keys come in any order and in ascending order, and leave in any order and from the front.
            let (key, is_new) = match step / 2_000 % 5 {
                0 => (any, inserts > 0),
                1 => (2_000 + step, true),
                2 => (any, inserts == 0),
                3 => (model.first_key_value().map_or(0, |(key, _)| *key), false),
                _ => (any, inserts > 1),
            };
            if is_new && !model.contains_key(&key) {
                map.insert(key, step);
                model.insert(key, step);
            } else {
                assert_eq!(map.remove(key), model.remove(&key));
            }
            assert_eq!(map.get(key), model.get(&key));
            assert_eq!(map.contains(any), model.contains_key(&any));
            assert_eq!(map.len(), model.len());
            let pair = |(key, value): (&u64, &u64)| (*key, *value);
            let own = |(key, value): (u64, &u64)| (key, *value);
            assert_eq!(map.first().map(own), model.first_key_value().map(pair));
            assert_eq!(map.last().map(own), model.last_key_value().map(pair));
            for key in [key, any] {
                let before = model.range(..key).next_back();
                assert_eq!(map.before(key).map(own), before.map(pair));
                let after = model.range_mut(key + 1..).next().map(|(_, value)| value);
                assert_eq!(map.after_mut(key), after);
            }
            if step % 16 == 0 {
                height = height.max(assert_tree(&map.places));
                assert!(map.values().eq(model.values()) && map.keys().eq(model.keys().copied()));
            }
        }
        assert!(height > 0 && model.len() > 100, "too little happened");
        assert!(map.values.len() <= 4_000, "places are used again");
    }
}
