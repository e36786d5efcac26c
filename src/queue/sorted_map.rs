//! Sorted maps that share the code of one sorted list.
//!
//! Each type of map adds the code of a tree to a program, and a `BTreeMap` adds about 15 KB. The maps
//! of a line differ only in their values, so one list holds places in a list of values instead. Up to
//! some 30,000 entries its chunks are about as fast as a tree, with a fraction of the code.

/// The most entries of a chunk.
const CHUNK: usize = 64;

/// A sorted set of pairs of numbers, with a number for each pair.
///
/// Every operation is a binary search. A change also moves the entries of one chunk, and, if a chunk is
/// added or removed, the list of chunks behind it: at most 1.5 bytes per entry of the set.
#[derive(Debug, Default)]
pub(super) struct SortedPairs {
    /// No chunk is empty. Two neighbors have more than half a chunk of entries together.
    chunks: Vec<Vec<Entry>>,
    len: usize,
}

type Entry = ((u64, u64), u64);

// Not inlined and not generic: compiled once.
impl SortedPairs {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The number of chunks that begin with a pair up to `pair`. It is in the last of them.
    fn chunks_up_to(&self, pair: (u64, u64)) -> usize {
        self.chunks
            .partition_point(|chunk| chunk.first().is_some_and(|(first, _)| *first <= pair))
    }

    /// The chunk of `pair` and its index in there. The error is the index at which it would be.
    #[inline(never)]
    fn find(&self, pair: (u64, u64)) -> (usize, Result<usize, usize>) {
        let chunk = self.chunks_up_to(pair).saturating_sub(1);
        let entries = self.chunks.get(chunk).map_or(&[][..], Vec::as_slice);
        (chunk, entries.binary_search_by_key(&pair, |(one, _)| *one))
    }

    #[inline(never)]
    pub(super) fn insert(&mut self, pair: (u64, u64), number: u64) {
        let (at_chunk, found) = self.find(pair);
        let Some(chunk) = self.chunks.get_mut(at_chunk) else {
            self.len = 1;
            self.chunks.push(vec![(pair, number)]);
            return;
        };
        let at = match found {
            Ok(at) => {
                chunk[at].1 = number;
                return;
            }
            Err(at) => at,
        };
        self.len += 1;
        if chunk.len() < CHUNK {
            chunk.insert(at, (pair, number));
            return;
        }
        // Chunks that are filled in order stay full.
        let mut behind = chunk.split_off(if at == CHUNK { CHUNK } else { CHUNK / 2 });
        match at.checked_sub(chunk.len()) {
            Some(at) => behind.insert(at, (pair, number)),
            None => chunk.insert(at, (pair, number)),
        }
        self.chunks.insert(at_chunk + 1, behind);
    }

    #[inline(never)]
    pub(super) fn remove(&mut self, pair: (u64, u64)) -> Option<u64> {
        let (at_chunk, found) = self.find(pair);
        let chunk = self.chunks.get_mut(at_chunk)?;
        let (_, number) = chunk.remove(found.ok()?);
        self.len -= 1;
        if chunk.is_empty() {
            self.chunks.remove(at_chunk);
        }
        for at in [at_chunk, at_chunk.saturating_sub(1)] {
            self.join_small(at);
        }
        Some(number)
    }

    /// Joins a chunk with the one behind it, if both are small.
    fn join_small(&mut self, at: usize) {
        if let [chunk, behind, ..] = self.chunks.get_mut(at..).unwrap_or_default() {
            if chunk.len() + behind.len() <= CHUNK / 2 {
                chunk.append(behind);
                self.chunks.remove(at + 1);
            }
        }
    }

    pub(super) fn get(&self, pair: (u64, u64)) -> Option<u64> {
        let (chunk, found) = self.find(pair);
        Some(self.chunks.get(chunk)?.get(found.ok()?)?.1)
    }

    /// The first pair that is not less than `least`.
    #[inline(never)]
    fn next(&self, least: (u64, u64)) -> Option<Entry> {
        let (chunk, Ok(at) | Err(at)) = self.find(least);
        let behind = || self.chunks.get(chunk + 1)?.first();
        self.chunks.get(chunk)?.get(at).or_else(behind).copied()
    }

    /// The last pair that is not greater than `most`.
    #[inline(never)]
    fn previous(&self, most: (u64, u64)) -> Option<Entry> {
        let chunk = self.chunks.get(self.chunks_up_to(most).checked_sub(1)?)?;
        let up_to = chunk.partition_point(|(one, _)| *one <= most);
        chunk.get(up_to.checked_sub(1)?).copied()
    }

    /// The entries, in order.
    fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.chunks.iter().flatten()
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
        for (_, place) in self.places.iter() {
            if let Some(Some(value)) = self.values.get_mut(index(*place)) {
                change(value);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn keys(&self) -> impl Iterator<Item = u64> {
        self.places.iter().map(|((key, _), _)| *key)
    }

    #[cfg(test)]
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        let places = self.places.iter();
        places.filter_map(|(_, place)| self.value(*place))
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

    use super::*;

    /// The promise of [`SortedPairs::chunks`].
    fn assert_chunks(pairs: &SortedPairs) {
        let lengths: Vec<_> = pairs.chunks.iter().map(Vec::len).collect();
        assert!(lengths.iter().all(|len| (1..=CHUNK).contains(len)));
        assert!(lengths.windows(2).all(|two| two[0] + two[1] > CHUNK / 2));
        assert_eq!(lengths.iter().sum::<usize>(), pairs.len());
    }

    #[test]
    fn a_sorted_map_behaves_like_a_btree_map() {
        let (mut map, mut model) = (SortedMap::default(), BTreeMap::new());
        let mut random = 7_u64;
        let mut most_chunks = 0;
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
            assert_chunks(&map.places);
            most_chunks = most_chunks.max(map.places.chunks.len());
            if step % 16 == 0 {
                assert!(map.values().eq(model.values()) && map.keys().eq(model.keys().copied()));
            }
        }
        assert!(most_chunks > 20 && model.len() > 100, "too little happened");
        assert!(map.values.len() <= 4_000, "places are used again");
    }

    #[test]
    fn a_number_is_replaced() {
        let mut pairs = SortedPairs::default();
        for number in 0..1_000 {
            pairs.insert((number % 200, 7), number);
        }
        assert!(pairs.iter().map(|(_, number)| *number).eq(800..1_000));
        assert_eq!((pairs.len(), pairs.get((3, 7))), (200, Some(803)));
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
