//! Which sets a key may live in, and how many there are.

use super::slot::slots;

/// The sets that a home shares its keys with: the home's number, xor each of these.
///
/// So a set and a number of steps name the home. The masks keep within a group of sets, and are
/// spread so that a crowded set does not have the same neighbours as those it crowds.
#[derive(Debug)]
pub(super) struct ProbeSequence {
    masks: [u8; MAX_PROBES],
    pub(super) len: usize,
    /// How many sets a group has: a power of two.
    pub(super) group: usize,
}

/// The most sets that a home shares its keys with, itself among them.
pub(super) const MAX_PROBES: usize = 32;
const PROBE_MASKS: [u8; MAX_PROBES] = [
    0, 1, 2, 4, 8, 16, 32, 64, 7, 25, 42, 52, 63, 11, 21, 38, 57, 78, 113, 91, 118, 103, 120, 73,
    126, 67, 76, 112, 85, 106, 92, 99,
];
pub(super) const FINGERPRINT_BITS: u32 = 43;

/// How full a table is made, and how far a key that finds its home full may go.
struct TableSizing {
    /// So many slots for so many keys.
    slots: usize,
    keys: usize,
    /// How many sets a group has, and how many of these a home shares its keys with.
    group: usize,
    steps: usize,
}

impl TableSizing {
    /// For states of so many words: such that of a hundred million keys that are all in use one to
    /// three find no room.
    ///
    /// Four words are dear enough to be worth a fuller table. There a tenth of the keys is not at
    /// home as well, but those that go far go farther, and in a group of 64 sets there may not be
    /// room for them at all.
    const fn of(words: usize) -> Self {
        match words {
            4 => Self {
                slots: 7,
                keys: 6,
                group: 128,
                steps: 32,
            },
            _ => Self {
                slots: 10,
                keys: 7,
                group: 64,
                steps: 20,
            },
        }
    }
}

impl ProbeSequence {
    /// Which they are in a table of so many keys whose states have so many words, and how many sets
    /// it has.
    pub(super) fn for_keys(words: usize, keys: usize) -> (Self, usize) {
        let shape = TableSizing::of(words);
        let all = keys / shape.keys * shape.slots + keys % shape.keys * shape.slots / shape.keys;
        let sets = (all + 1).div_ceil(slots(words));
        let group = sets.next_power_of_two().min(shape.group);
        (
            Self::within(group, shape.steps),
            sets.next_multiple_of(group),
        )
    }

    fn within(group: usize, most: usize) -> Self {
        let mut masks = [0; MAX_PROBES];
        let mut len = 0;
        // All of a group too small for so many are near.
        for mask in PROBE_MASKS.into_iter().chain(0..64) {
            if len < most && usize::from(mask) < group && !masks[..len].contains(&mask) {
                masks[len] = mask;
                len += 1;
            }
        }
        Self { masks, len, group }
    }

    /// How many sets to look through for a key that can be done without: not all, because a flood
    /// asks it every time.
    pub(super) fn enough(&self) -> usize {
        self.len.min(16)
    }

    /// The set that many steps from a home; and the home, from that set.
    #[inline]
    pub(super) const fn near(&self, home: usize, steps: usize) -> usize {
        home ^ self.masks[steps] as usize
    }
}

/// The tag of a key that lives so many steps from its home.
#[inline]
pub(super) const fn tag(fingerprint: u64, steps: usize) -> u64 {
    fingerprint | (steps as u64) << FINGERPRINT_BITS
}

#[inline]
pub(super) const fn probe_of_tag(tag: u64) -> usize {
    (tag >> FINGERPRINT_BITS) as usize & (MAX_PROBES - 1)
}

#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod tests {
    use super::*;
    use crate::store::local::slot::{CacheLine, lines};

    #[test]
    fn no_table_takes_more_bytes_a_key_than_the_docs_say() {
        for keys in [100_000, 1_000_000, 10_000_000, 100_000_000] {
            let bytes = [1, 2, 3, 4].map(|words| {
                let (_, sets) = ProbeSequence::for_keys(words, keys);
                (sets * lines(words) * size_of::<CacheLine>()).div_ceil(keys)
            });
            assert_eq!(bytes, [23, 37, 46, 47], "{keys} keys");
        }
    }

    #[test]
    fn a_home_has_as_many_near_sets_as_it_should() {
        for (words, near) in [(1, 20), (2, 20), (3, 20), (4, 32)] {
            for keys in [1, 10, 100, 1_000, 10_000, 100_000] {
                let (probes, sets) = ProbeSequence::for_keys(words, keys);
                assert_eq!(probes.len, near.min(probes.group));
                assert_eq!(sets % probes.group, 0);
                let mut found: Vec<_> =
                    (0..probes.len).map(|steps| probes.near(0, steps)).collect();
                found.sort_unstable();
                found.dedup();
                assert_eq!(found.len(), probes.len, "{words} words, {keys} keys");
                assert!(found.iter().all(|set| *set < probes.group));
            }
        }
    }

    #[test]
    fn a_tag_fits_its_slot_and_names_its_steps() {
        for steps in 0..MAX_PROBES {
            let tag = tag((1 << FINGERPRINT_BITS) - 1, steps);
            assert_eq!(probe_of_tag(tag), steps);
            assert!(tag < 1 << 48);
        }
    }
}
