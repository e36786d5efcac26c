//! States that do not fit a slot: logs, large counts, and algorithms that do not pack their states.
//!
//! The slot holds the key's tag, the expiry of the state, and the index of the state in the shard
//! of the slot's set. All sets of a probe sequence belong to one shard, so that one lock covers
//! every operation on a spilled state.

use super::probe::FINGERPRINT_BITS;
use super::slot::SlotWords;
use crate::clock::Tick;
use crate::sync::{Mutex, MutexGuard, lock};

/// The home set and the fingerprint of a key. The table stores nothing else of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyId {
    pub(super) home: usize,
    pub(super) fingerprint: u64,
}

/// The bit that marks the first word of a spilled state. The bits below are 39 bits of expiry and
/// 24 bits of index.
const SPILLED: u64 = 1 << 63;
const INDEX_BITS: u32 = 24;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;
/// The latest expiry that fits. It also represents every later one, and is read as [`Tick::MAX`].
const MAX_EXPIRY: u64 = (1 << 39) - 1;

/// Whether a slot with this first word has its state in the spill store.
#[inline]
pub(super) const fn is_spilled(word: u64) -> bool {
    word >= SPILLED
}

/// The words of a slot whose state is in the spill store at `index`.
pub(super) fn spilled_word(index: usize, forgettable_at: Tick) -> SlotWords {
    // Rounded up to 2^24 ns (17 ms), so that the slot of a busy key rarely changes.
    let until = forgettable_at.as_nanos().div_ceil(1 << INDEX_BITS);
    let word = SPILLED | until.min(MAX_EXPIRY) << INDEX_BITS | index as u64;
    [word, 0, 0, 0]
}

/// The expiry in the first word of a spilled state.
pub(super) const fn spill_forgettable_at(word: u64) -> Tick {
    match (word & !SPILLED) >> INDEX_BITS {
        MAX_EXPIRY => Tick::MAX,
        until => Tick::from_nanos(until << INDEX_BITS),
    }
}

/// The index in the first word of a spilled state.
pub(super) const fn spill_index(word: u64) -> usize {
    (word & INDEX_MASK) as usize
}

#[derive(Debug)]
pub(super) struct SpillStore<S> {
    shards: Box<[Mutex<Shard<S>>]>,
}

/// The spilled states of some sets, and the indices of free entries.
#[derive(Debug)]
pub(super) struct Shard<S> {
    entries: Vec<Entry<S>>,
    free: Vec<u32>,
}

/// A state and its owner, in separate cache lines: usually one.
#[derive(Debug)]
#[repr(align(64))]
struct Entry<S>(Option<(EntryOwner, S)>);

/// The fingerprint of a [`KeyId`] and the low bits of its home set.
///
/// This is only a second check. The slot that holds the index, read while the shard is locked,
/// already determines the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EntryOwner(u64);

impl From<KeyId> for EntryOwner {
    fn from(id: KeyId) -> Self {
        Self(id.fingerprint | (id.home as u64) << FINGERPRINT_BITS)
    }
}

impl<S> SpillStore<S> {
    /// The store for a table of `slots` slots in `groups` groups. A group never spans two shards.
    pub(super) fn new(groups: usize, slots: usize) -> Self {
        let shards = 0..Self::shard_count(groups, slots);
        Self {
            shards: shards.map(|_| Mutex::new(Shard::new())).collect(),
        }
    }

    fn shard_count(groups: usize, slots: usize) -> usize {
        // An index has 24 bits, which limits the states per shard.
        let least = (slots >> (INDEX_BITS - 1)) + 1;
        groups.min(least.max(4_096))
    }

    pub(super) fn shard(&self, group: usize) -> MutexGuard<'_, Shard<S>> {
        lock(&self.shards[group % self.shards.len()])
    }

    /// The upper bound of the bytes in [`usage`](Self::usage) for a table of `slots` slots in
    /// `groups` groups, if a state allocates at most `held`.
    pub(super) fn max_bytes_of(groups: usize, slots: usize, held: usize) -> usize {
        let shards = Self::shard_count(groups, slots);
        // While one state replaces another, both are stored.
        let states = groups.div_ceil(shards) * slots.div_ceil(groups) + 1;
        let entry = size_of::<Entry<S>>() + size_of::<u32>();
        let own = states.next_power_of_two().max(4) * entry;
        let shard = held.saturating_mul(states).saturating_add(own);
        shard.saturating_mul(shards)
    }

    /// How many states satisfy `counts`.
    pub(super) fn count(&self, counts: impl Fn(&S) -> bool) -> usize {
        let of_shard = |shard| {
            let shard: MutexGuard<'_, Shard<S>> = lock(shard);
            shard.iter().filter(|state| counts(state)).count()
        };
        self.shards.iter().map(of_shard).sum()
    }

    /// The largest number that `read` finds in a state.
    pub(super) fn max(&self, read: impl Fn(&S) -> u64) -> u64 {
        let of_shard = |shard| {
            let shard: MutexGuard<'_, Shard<S>> = lock(shard);
            shard.iter().map(&read).max().unwrap_or(0)
        };
        self.shards.iter().map(of_shard).max().unwrap_or(0)
    }

    /// The number of states, and the bytes of the states and their entries. `held` returns the
    /// bytes that a state has allocated.
    pub(super) fn usage(&self, held: impl Fn(&S) -> usize) -> (usize, usize) {
        self.shards.iter().fold((0, 0), |(states, bytes), shard| {
            let shard = lock(shard);
            let held: usize = shard.iter().map(&held).sum();
            let own = shard.entries.capacity() * size_of::<Entry<S>>()
                + shard.free.capacity() * size_of::<u32>();
            (states + shard.iter().count(), bytes + own + held)
        })
    }
}

impl<S> Shard<S> {
    const fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Stores a state and returns its index.
    pub(super) fn insert(&mut self, id: KeyId, state: S) -> usize {
        let entry = Entry(Some((id.into(), state)));
        if let Some(index) = self.free.pop() {
            self.entries[index as usize] = entry;
            index as usize
        } else {
            self.entries.push(entry);
            self.entries.len() - 1
        }
    }

    pub(super) fn get(&self, index: usize, id: KeyId) -> Option<&S> {
        match self.entries.get(index) {
            Some(Entry(Some((owner, state)))) if *owner == id.into() => Some(state),
            _ => None,
        }
    }

    pub(super) fn get_mut(&mut self, index: usize, id: KeyId) -> Option<&mut S> {
        match self.entries.get_mut(index) {
            Some(Entry(Some((owner, state)))) if *owner == id.into() => Some(state),
            _ => None,
        }
    }

    pub(super) fn remove(&mut self, index: usize, id: KeyId) -> Option<S> {
        self.get(index, id)?;
        // Never fails: an index has 24 bits.
        self.free.push(u32::try_from(index).ok()?);
        self.entries[index].0.take().map(|(_, state)| state)
    }

    fn iter(&self) -> impl Iterator<Item = &S> {
        let entries = self.entries.iter().filter_map(|entry| entry.0.as_ref());
        entries.map(|(_, state)| state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{Algorithm, SlidingLog};

    /// Shows promise 42.
    #[test]
    fn a_short_log_takes_one_cache_line() {
        assert_eq!(size_of::<Entry<<SlidingLog as Algorithm>::State>>(), 64);
    }

    #[test]
    fn the_word_of_a_spilled_state_holds_its_index_and_an_expiry_that_is_not_early() {
        let step = 1_u64 << 24;
        for index in [0, 1, 0xab_cdef, (1 << 24) - 1] {
            for until in [0, 1, step, step + 1, (1 << 62) + 1, (1 << 63) - 2 * step] {
                let words = spilled_word(index, Tick::from_nanos(until));
                assert_eq!(words[1..], [0; 3]);
                assert!(is_spilled(words[0]) && !is_spilled(words[0] & !(1 << 63)));
                assert_eq!(spill_index(words[0]), index);
                let stored = spill_forgettable_at(words[0]).as_nanos();
                assert_eq!(stored, until.next_multiple_of(step));
            }
            for until in [(1 << 63) - 1, 1 << 63, u64::MAX] {
                let words = spilled_word(index, Tick::from_nanos(until));
                assert_eq!(spill_index(words[0]), index);
                assert_eq!(spill_forgettable_at(words[0]), Tick::MAX);
            }
        }
    }

    #[test]
    fn an_entry_belongs_to_one_key_and_is_used_again() {
        let id = |home, fingerprint| KeyId { home, fingerprint };
        let mut shard = Shard::new();
        let (first, second) = (id(1, 5), id(2, 5));
        assert_eq!(shard.insert(first, "first"), 0);
        assert_eq!(shard.insert(second, "second"), 1);
        for other in [id(1, 4), id(3, 5), id(1 << 20 | 1, 5), second] {
            assert!(shard.get(0, other).is_none() && shard.get_mut(0, other).is_none());
            assert!(shard.remove(0, other).is_none(), "{other:?}");
        }
        assert!(shard.get(2, first).is_none());
        let kept = |shard: &Shard<_>, index, id| shard.get(index, id).copied();
        assert_eq!(kept(&shard, 0, first), Some("first"));
        assert_eq!(kept(&shard, 1, second), Some("second"));
        assert_eq!(shard.remove(0, first), Some("first"));
        assert_eq!(shard.iter().count(), 1);
        assert!(shard.get(0, first).is_none() && shard.remove(0, first).is_none());
        assert_eq!(shard.insert(first, "again"), 0);
        assert_eq!(shard.insert(id(7, 7), "third"), 2);
        assert_eq!(kept(&shard, 0, first), Some("again"));
    }

    #[test]
    fn an_index_has_enough_bits_for_all_states_of_a_shard() {
        // The largest table of a system with 64 bits.
        let largest = 1_usize.checked_shl(36);
        for slots in [4, 5_000, 1 << 20, 1 << 23, 1 << 30]
            .into_iter()
            .chain(largest)
        {
            let groups = (slots / 256).max(1);
            let shards = SpillStore::<()>::shard_count(groups, slots);
            assert!(shards <= groups);
            let states = groups.div_ceil(shards) * slots.div_ceil(groups);
            assert!(states < 1 << INDEX_BITS, "{slots} slots, {shards} shards");
            // Shards are locked, so there are many of them in a large table.
            assert!(
                shards >= groups.min(4_096),
                "{slots} slots, {shards} shards"
            );
        }
    }

    #[test]
    fn the_most_bytes_are_those_of_a_full_store_with_one_more_state() {
        let held = 10;
        let most = SpillStore::<u64>::max_bytes_of(1, 256, held);
        let store = SpillStore::<u64>::new(1, 256);
        let id = KeyId {
            home: 0,
            fingerprint: 1,
        };
        let insert_all = || {
            for _ in 0..257 {
                store.shard(0).insert(id, 0);
            }
        };
        insert_all();
        for index in 0..257 {
            assert!(store.shard(0).remove(index, id).is_some());
        }
        insert_all();
        assert_eq!(store.usage(|_| held), (257, most));
        // Two groups of four slots per shard, and one more state.
        let shard = 16 * (64 + 4) + 9 * held;
        assert_eq!(
            SpillStore::<u64>::max_bytes_of(5_000, 20_000, held),
            shard * 4_096
        );
    }
}
