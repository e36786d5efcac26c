//! Sorted maps that share the code of one tree.
//!
//! Each type of map adds the code of a tree to a program, about 10 KB for a `BTreeMap`. The maps of a
//! line differ only in their values, so the tree holds places in a list of values instead.

use std::collections::BTreeMap;

/// A sorted set of pairs of numbers, with a number for each pair.
#[derive(Debug, Default)]
pub(super) struct SortedPairs(BTreeMap<(u64, u64), u64>);

// Not inlined and not generic: compiled once.
impl SortedPairs {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline(never)]
    pub(super) fn insert(&mut self, pair: (u64, u64), number: u64) {
        self.0.insert(pair, number);
    }

    #[inline(never)]
    pub(super) fn remove(&mut self, pair: (u64, u64)) -> Option<u64> {
        self.0.remove(&pair)
    }

    #[inline(never)]
    pub(super) fn get(&self, pair: (u64, u64)) -> Option<u64> {
        self.0.get(&pair).copied()
    }

    /// The first pair that is not less than `least`.
    #[inline(never)]
    fn next(&self, least: (u64, u64)) -> Option<((u64, u64), u64)> {
        let (pair, number) = self.0.range(least..).next()?;
        Some((*pair, *number))
    }

    /// The last pair that is not greater than `most`.
    #[inline(never)]
    fn previous(&self, most: (u64, u64)) -> Option<((u64, u64), u64)> {
        let (pair, number) = self.0.range(..=most).next_back()?;
        Some((*pair, *number))
    }

    /// The least second number of the pairs that begin with `first`.
    pub(super) fn first_of(&self, first: u64) -> Option<u64> {
        let ((found, second), _) = self.next((first, 0))?;
        (found == first).then_some(second)
    }

    /// The greatest second number of the pairs that begin with `first`.
    pub(super) fn last_of(&self, first: u64) -> Option<u64> {
        let ((found, second), _) = self.previous((first, u64::MAX))?;
        (found == first).then_some(second)
    }
}

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
        for place in self.places.0.values() {
            if let Some(Some(value)) = self.values.get_mut(index(*place)) {
                change(value);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn keys(&self) -> impl Iterator<Item = u64> {
        self.places.0.keys().map(|(key, _)| *key)
    }

    #[cfg(test)]
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        let places = self.places.0.values();
        places.filter_map(|place| self.value(*place))
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
    use super::*;

    #[test]
    fn a_sorted_map_behaves_like_a_btree_map() {
        let (mut map, mut model) = (SortedMap::default(), BTreeMap::new());
        let mut random = 7_u64;
        for step in 0..20_000_u64 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let key = (random >> 33) % 50;
            if random >> 63 == 0 && !model.contains_key(&key) {
                map.insert(key, step);
                model.insert(key, step);
            } else {
                assert_eq!(map.remove(key), model.remove(&key));
            }
            assert_eq!(map.get(key), model.get(&key));
            assert_eq!(map.contains(key), model.contains_key(&key));
            assert_eq!(map.len(), model.len());
            let pair = |(key, value): (&u64, &u64)| (*key, *value);
            let own = |(key, value): (u64, &u64)| (key, *value);
            assert_eq!(map.first().map(own), model.first_key_value().map(pair));
            assert_eq!(map.last().map(own), model.last_key_value().map(pair));
            let before = model.range(..key).next_back();
            assert_eq!(map.before(key).map(own), before.map(pair));
            let after = model.range_mut(key + 1..).next().map(|(_, value)| value);
            assert_eq!(map.after_mut(key), after);
            assert!(map.values().eq(model.values()) && map.keys().eq(model.keys().copied()));
        }
        assert!(map.values.len() <= 50, "places are used again");
    }

    #[test]
    fn the_first_and_last_of_a_number_are_those_of_no_other() {
        let mut pairs = SortedPairs::default();
        for pair in [(1, u64::MAX), (2, 3), (2, 5), (3, 0), (u64::MAX, 1)] {
            pairs.insert(pair, 0);
        }
        assert_eq!((pairs.first_of(2), pairs.last_of(2)), (Some(3), Some(5)));
        assert_eq!((pairs.first_of(0), pairs.last_of(4)), (None, None));
        assert_eq!(pairs.last_of(u64::MAX), Some(1));
        assert_eq!(pairs.remove((2, 5)), Some(0));
        assert_eq!((pairs.last_of(2), pairs.len()), (Some(3), 4));
    }
}
