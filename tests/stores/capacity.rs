//! A table holds as many keys as its capacity, for every size of state.

use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;

use tower_throttle::algorithm::Packing;
use tower_throttle::{Local, ManualClock, Quota, SlidingGrid};

/// A hasher without a random seed.
type FixedHasher = BuildHasherDefault<DefaultHasher>;

/// A grid whose states take `words` words.
pub(crate) fn grid_of(words: usize) -> SlidingGrid {
    (1..=SlidingGrid::MAX_CELLS)
        .map(|cells| SlidingGrid::new(Quota::per_hour(1_000)).cells(cells))
        .find(|grid| SlidingGrid::word_count(grid) == words)
        .expect("a grid of every size")
}

/// Fills a table of `capacity` with `keys` live keys. Returns how many of them it has lost.
fn lost_keys(words: usize, capacity: usize, keys: usize) -> usize {
    let local = Local::new(grid_of(words))
        .with_clock(ManualClock::new())
        .with_hasher(FixedHasher::default())
        .capacity(capacity);
    for key in 0..keys {
        let _ = local.check_n(&key, 10);
    }
    let lost = (0..keys)
        .filter(|key| local.peek(key).remaining() == 1_000)
        .count();
    assert_eq!(local.stats().evicted, lost as u64);
    assert_eq!(local.stats().outside, 0);
    lost
}

#[test]
fn a_table_holds_its_capacity() {
    for words in 1..=4 {
        for capacity in [1, 7, 100, 1_000, 10_000, 200_000] {
            let lost = lost_keys(words, capacity, capacity);
            assert_eq!(lost, 0, "{words} words, {capacity} keys");
        }
    }
}

#[test]
fn lost_keys_of_an_overfull_table_are_counted() {
    for words in 1..=4 {
        // Slightly more keys than slots.
        assert!(lost_keys(words, 10_000, 14_600) > 100, "{words} words");
    }
}
