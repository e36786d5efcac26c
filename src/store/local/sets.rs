//! The sets of a table, and the sets that may store a key.
//!
//! This module does not depend on the algorithm or on the type of its states.

use super::huge_pages::vec_with_huge_pages;
use super::probe::{FINGERPRINT_BITS, ProbeSequence, probe_of_tag};
use super::slot::{CacheLine, Set, lines_per_set, slots_per_set};
use super::spill::KeyId;
use crate::prefetch::prefetch;

/// A key, and the first line of its home set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Located {
    pub(super) id: KeyId,
    line: usize,
}

/// All sets of a table.
#[derive(Debug)]
pub(super) struct Sets {
    lines: Box<[CacheLine]>,
    /// The number of sets.
    pub(super) len: usize,
    /// The words per state.
    pub(super) state_words: usize,
    /// Follows from `state_words`. Stored because the fast path multiplies by it.
    lines_per_set: usize,
    pub(super) probes: ProbeSequence,
}

impl Sets {
    /// The sets of a table for `keys` keys with states of `words` words.
    pub(super) fn for_keys(words: usize, keys: usize) -> Self {
        let mut sets = Self::unallocated(words, keys);
        let len = sets.len * sets.lines_per_set;
        let mut lines = vec_with_huge_pages(len);
        lines.resize_with(len, CacheLine::default);
        sets.lines = lines.into_boxed_slice();
        sets
    }

    /// The sizes of such a table, without its memory.
    pub(super) fn unallocated(words: usize, keys: usize) -> Self {
        let (probes, len) = ProbeSequence::for_keys(words, keys);
        Self {
            lines: Box::default(),
            len,
            state_words: words,
            lines_per_set: lines_per_set(words),
            probes,
        }
    }

    /// The key with this hash. The high bits choose the home set, the low bits are the fingerprint.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the product's high half is below the number of sets"
    )]
    #[inline]
    pub(super) const fn key_id(&self, hash: u64) -> KeyId {
        let fingerprint = hash & ((1 << FINGERPRINT_BITS) - 1);
        KeyId {
            home: ((hash as u128 * self.len as u128) >> 64) as usize,
            // Zero marks an empty slot.
            fingerprint: if fingerprint == 0 { 1 } else { fingerprint },
        }
    }

    /// The key with this hash, and the first line of its home set. States take at most `most_words`
    /// words.
    #[inline]
    pub(super) fn locate(&self, hash: u64, most_words: usize) -> Located {
        let id = self.key_id(hash);
        let line = match most_words {
            1 => id.home,
            _ => id.home * self.lines_per_set,
        };
        Located { id, line }
    }

    #[inline]
    pub(super) fn prefetch(&self, located: Located) {
        let line = self.lines.as_ptr().wrapping_add(located.line);
        prefetch(line, size_of::<CacheLine>());
    }

    /// The set at this index.
    pub(super) fn set(&self, at: usize) -> Set<'_> {
        Set::at_index(&self.lines, at, self.state_words)
    }

    /// The home set of a key, for the fast path. States must take `words` words.
    #[inline]
    pub(super) fn home(&self, located: Located, words: usize) -> Set<'_> {
        Set::at_line(&self.lines, located.line, words)
    }

    /// The key with this tag in set `at`.
    pub(super) const fn key_id_at(&self, at: usize, tag: u64) -> KeyId {
        KeyId {
            home: self.probes.set_index(at, probe_of_tag(tag)),
            fingerprint: tag & ((1 << FINGERPRINT_BITS) - 1),
        }
    }

    pub(super) const fn group_of(&self, at: usize) -> usize {
        at / self.probes.group_sets
    }

    /// The number of groups.
    pub(super) const fn groups(&self) -> usize {
        self.len / self.probes.group_sets
    }

    /// The number of slots.
    pub(super) const fn slots(&self) -> usize {
        self.len * slots_per_set(self.state_words)
    }

    pub(super) const fn bytes(&self) -> usize {
        self.len * self.lines_per_set * size_of::<CacheLine>()
    }

    /// The last probe up to `probe_len` at which a key of this home is stored.
    ///
    /// Only the holder of the home's lock can raise it, so the result is never too small if the
    /// home is unchanged.
    pub(super) fn longest_probe(&self, home: usize, probe_len: usize) -> usize {
        (1..=probe_len)
            .rev()
            .find(|probe| {
                let set = self.set(self.probes.set_index(home, *probe)).snapshot();
                set.tags
                    .iter()
                    .any(|tag| *tag != 0 && probe_of_tag(*tag) == *probe)
            })
            .unwrap_or(0)
    }
}

#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod tests {
    use super::*;
    use crate::store::local::probe::make_tag;

    #[test]
    fn every_set_is_in_one_group_and_all_of_them_take_the_reported_memory() {
        for (words, keys) in [(1, 1), (1, 1_000), (2, 5_000), (3, 5_000), (4, 5_000)] {
            let sets = Sets::for_keys(words, keys);
            assert_eq!(sets.bytes(), size_of_val(&*sets.lines));
            assert_eq!(sets.groups() * sets.probes.group_sets, sets.len);
            for at in 0..sets.len {
                let first = sets.group_of(at) * sets.probes.group_sets;
                assert!((first..first + sets.probes.group_sets).contains(&at));
            }
        }
    }

    #[test]
    fn the_longest_probe_is_that_of_a_key_with_this_home() {
        let sets = Sets::for_keys(1, 1_000);
        let write = |home, probe, tag| {
            let set = sets.set(sets.probes.set_index(home, probe));
            set.lock().write_tag(0, tag);
        };
        let home = 5;
        assert_eq!(sets.longest_probe(home, 10), 0);
        write(home, 3, make_tag(99, 3));
        // A key of another home, in a set that this home may use.
        write(home, 7, make_tag(99, 8));
        assert_eq!(sets.longest_probe(home, 2), 0);
        assert_eq!([3, 7, 10].map(|len| sets.longest_probe(home, len)), [3; 3]);
        write(home, 9, make_tag(98, 9));
        assert_eq!(sets.longest_probe(home, 10), 9);
        write(home, 9, 0);
        assert_eq!(sets.longest_probe(home, 10), 3);
    }
}
