//! The probe sequence: the sets that may hold a key, and the number of sets.

use super::slot::{MAX_PROBES, slots_per_set};

/// The sets that may hold the keys of a home set: its index xor each of the masks.
///
/// Xor is its own inverse, so the home can be computed from a set and a probe number. The masks
/// stay within a group of sets. They are spread so that a full set and the sets that take its
/// overflow have different probe sequences.
#[derive(Debug)]
pub(super) struct ProbeSequence {
    masks: [u8; MAX_PROBES],
    pub(super) len: usize,
    /// The number of sets per group, a power of two.
    pub(super) group_sets: usize,
}

const PROBE_MASKS: [u8; MAX_PROBES] = [
    0, 1, 2, 4, 8, 16, 32, 64, 7, 25, 42, 52, 63, 11, 21, 38, 57, 78, 113, 91, 118, 103, 120, 73,
    126, 67, 76, 112, 85, 106, 92, 99,
];
pub(super) const FINGERPRINT_BITS: u32 = 43;

/// The load factor of a table and the length of its probe sequence.
struct TableSizing {
    /// `slots` slots per `keys` keys.
    slots: usize,
    keys: usize,
    /// The number of sets per group, and how many of them may hold the keys of one home.
    group_sets: usize,
    probe_len: usize,
}

impl TableSizing {
    /// The sizing with which one to three of a hundred million live keys find no slot.
    ///
    /// States of four words are large enough to justify a higher load factor. Then a tenth of the
    /// keys is outside the home set, as for other widths, but the longest probe sequences are
    /// longer: a group of 64 sets might have no free slot at all.
    const fn for_state_words(words: usize) -> Self {
        match words {
            4 => Self {
                slots: 7,
                keys: 6,
                group_sets: 128,
                probe_len: 32,
            },
            _ => Self {
                slots: 10,
                keys: 7,
                group_sets: 64,
                probe_len: 20,
            },
        }
    }
}

impl ProbeSequence {
    /// The probe sequence and the number of sets of a table for `keys` keys whose states have
    /// `words` words.
    pub(super) fn for_keys(words: usize, keys: usize) -> (Self, usize) {
        let sizing = TableSizing::for_state_words(words);
        let all =
            keys / sizing.keys * sizing.slots + keys % sizing.keys * sizing.slots / sizing.keys;
        let sets = (all + 1).div_ceil(slots_per_set(words));
        let group_sets = sets.next_power_of_two().min(sizing.group_sets);
        (
            Self::new(group_sets, sizing.probe_len),
            sets.next_multiple_of(group_sets),
        )
    }

    fn new(group_sets: usize, most: usize) -> Self {
        let mut masks = [0; MAX_PROBES];
        let mut len = 0;
        // A group with fewer sets than `most` is probed as a whole.
        for mask in PROBE_MASKS.into_iter().chain(0..64) {
            if len < most && usize::from(mask) < group_sets && !masks[..len].contains(&mask) {
                masks[len] = mask;
                len += 1;
            }
        }
        Self {
            masks,
            len,
            group_sets,
        }
    }

    /// How many sets are searched for a key to evict. Fewer than all, because in a flood of new
    /// keys every request performs this search.
    pub(super) fn eviction_len(&self) -> usize {
        self.len.min(16)
    }

    /// The set at `probe` for a home set. Also the inverse: the home of a key found at `probe`.
    #[inline]
    pub(super) const fn set_index(&self, home: usize, probe: usize) -> usize {
        home ^ self.masks[probe] as usize
    }
}

/// The tag of a key that is stored at `probe` of its home's sequence.
#[inline]
pub(super) const fn make_tag(fingerprint: u64, probe: usize) -> u64 {
    fingerprint | (probe as u64) << FINGERPRINT_BITS
}

#[inline]
pub(super) const fn probe_of_tag(tag: u64) -> usize {
    (tag >> FINGERPRINT_BITS) as usize & (MAX_PROBES - 1)
}

#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod tests {
    use super::*;
    use crate::store::local::slot::{CacheLine, lines_per_set};

    /// Shows promise 42.
    #[test]
    fn bytes_per_key_match_the_documentation() {
        for keys in [100_000, 1_000_000, 10_000_000, 100_000_000] {
            let bytes = [1, 2, 3, 4].map(|words| {
                let (_, sets) = ProbeSequence::for_keys(words, keys);
                (sets * lines_per_set(words) * size_of::<CacheLine>()).div_ceil(keys)
            });
            assert_eq!(bytes, [23, 37, 46, 47], "{keys} keys");
        }
    }

    /// Of 10^12 tables with so many keys, the number in which any two keys have the same home set and
    /// fingerprint, which are at most the 64 bits of a hash.
    fn tables_with_a_shared_limit(words: usize, keys: usize) -> u128 {
        let (_, sets) = ProbeSequence::for_keys(words, keys);
        let identities = ((sets as u128) << FINGERPRINT_BITS).min(1 << 64);
        let pairs = keys as u128 * (keys as u128 - 1) / 2;
        pairs * 1_000_000_000_000 / identities
    }

    /// Shows promise 107.
    #[test]
    fn two_keys_share_a_limit_as_rarely_as_documented() {
        for (keys, one_word, most) in [
            (1_000_000, 160_000, 400_000),
            (10_000_000, 2_800_000, 4_000_000),
            (100_000_000, 280_000_000, 280_000_000),
        ] {
            let tables = tables_with_a_shared_limit(1, keys);
            assert!(tables <= one_word, "{keys} keys: {tables}");
            assert!(tables > one_word * 9 / 10, "{keys} keys: {tables}");
            for words in 1..=4 {
                let tables = tables_with_a_shared_limit(words, keys);
                assert!(tables <= most, "{words} words, {keys} keys: {tables}");
            }
        }
    }

    /// Shows promise 107.
    #[test]
    fn probe_sequences_are_distinct_and_stay_within_the_group() {
        for (words, near) in [(1, 20), (2, 20), (3, 20), (4, 32)] {
            for keys in [1, 10, 100, 1_000, 10_000, 100_000] {
                let (probes, sets) = ProbeSequence::for_keys(words, keys);
                assert_eq!(probes.len, near.min(probes.group_sets));
                assert_eq!(sets % probes.group_sets, 0);
                let mut found: Vec<_> = (0..probes.len)
                    .map(|probe| probes.set_index(0, probe))
                    .collect();
                found.sort_unstable();
                found.dedup();
                assert_eq!(found.len(), probes.len, "{words} words, {keys} keys");
                assert!(found.iter().all(|set| *set < probes.group_sets));
            }
        }
    }

    #[test]
    fn a_table_has_more_slots_than_its_sizing_asks_for_and_no_spare_group() {
        for words in 1..=4 {
            let (slots, per) = if words == 4 { (7, 6) } else { (10, 7) };
            for keys in (1..3_000).chain([1 << 20, (1 << 20) + 1]) {
                let (probes, sets) = ProbeSequence::for_keys(words, keys);
                let has = sets * slots_per_set(words);
                let spare = probes.group_sets * slots_per_set(words);
                assert!(has * per > keys * slots, "{words} words, {keys} keys");
                assert!(
                    (has - spare) * per <= keys * slots,
                    "{words} words, {keys} keys"
                );
            }
        }
    }

    #[test]
    fn an_eviction_searches_as_many_slots_as_documented() {
        let slots = [1, 2, 3, 4].map(|words| {
            let (probes, _) = ProbeSequence::for_keys(words, 100_000);
            probes.eviction_len() * slots_per_set(words)
        });
        assert_eq!(slots, [64, 80, 64, 128]);
        let (probes, sets) = ProbeSequence::for_keys(1, 10);
        assert_eq!(probes.eviction_len(), sets);
    }

    /// Shows promise 107.
    #[test]
    fn a_tag_fits_48_bits_and_contains_its_probe() {
        for probe in 0..MAX_PROBES {
            let tag = make_tag((1 << FINGERPRINT_BITS) - 1, probe);
            assert_eq!(probe_of_tag(tag), probe);
            assert!(tag < 1 << 48);
        }
    }
}
