//! A table holds as many keys as it says, whatever their states take.

use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;

use tower_throttle::algorithm::Packing;
use tower_throttle::{Local, ManualClock, Quota, SlidingGrid};

/// Hashes alike in every run.
type Fixed = BuildHasherDefault<DefaultHasher>;

/// A grid whose states take so many words.
pub(crate) fn grid_of(words: usize) -> SlidingGrid {
    (1..=SlidingGrid::MAX_CELLS)
        .map(|cells| SlidingGrid::new(Quota::per_hour(1_000)).cells(cells))
        .find(|grid| SlidingGrid::word_count(grid) == words)
        .expect("grids of every size")
}

/// Fills a table of `capacity` with `keys` that are all in use; answers how many of them it does
/// not know afterwards.
fn lost(words: usize, capacity: usize, keys: usize) -> usize {
    let local = Local::new(grid_of(words))
        .with_clock(ManualClock::new())
        .with_hasher(Fixed::default())
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
            let lost = lost(words, capacity, capacity);
            assert_eq!(lost, 0, "{words} words, {capacity} keys");
        }
    }
}

#[test]
fn a_table_of_too_many_keys_is_found_out() {
    for words in 1..=4 {
        // Hardly more than there are slots.
        assert!(lost(words, 10_000, 14_600) > 100, "{words} words");
    }
}
