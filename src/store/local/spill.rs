//! States that do not fit a slot: logs, figures too large, algorithms that pack nothing.
//!
//! The slot keeps the key, when the state may be forgotten, and where it stands in the shard of its
//! set. All the sets that a key may live in belong to one shard, so that one lock is enough for
//! whatever is done to them.

use super::probe::FINGERPRINT_BITS;
use crate::clock::Tick;
use crate::sync::{Mutex, MutexGuard, lock};

/// The home of a key and its fingerprint: all that a table knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyId {
    pub(super) home: usize,
    pub(super) fingerprint: u64,
}

/// In the first word of a state: it stands outside the table. Below are 39 bits of the moment when
/// it may be forgotten, and 24 bits that say where in its shard it is.
const SPILLED: u64 = 1 << 63;
const INDEX_BITS: u32 = 24;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;
/// Beyond it no moment is told from another.
const MAX_EXPIRY: u64 = (1 << 39) - 1;

/// Whether the state of a slot stands outside.
#[inline]
pub(super) const fn is_spilled<const W: usize>(words: &[u64; W]) -> bool {
    words[0] >= SPILLED
}

/// What the slot of such a state says.
pub(super) fn spilled_word<const W: usize>(index: usize, forgettable_at: Tick) -> [u64; W] {
    let mut words = [0; W];
    // VersionedState a hundredth of a second longer: then the slot of a busy key seldom changes.
    let until = forgettable_at.as_nanos().div_ceil(1 << INDEX_BITS);
    words[0] = SPILLED | until.min(MAX_EXPIRY) << INDEX_BITS | index as u64;
    words
}

/// When the state may be forgotten whose slot says this.
pub(super) const fn spill_forgettable_at(word: u64) -> Tick {
    match (word & !SPILLED) >> INDEX_BITS {
        MAX_EXPIRY => Tick::MAX,
        until => Tick::from_nanos(until << INDEX_BITS),
    }
}

/// Where the state stands whose slot says this.
pub(super) const fn index(word: u64) -> usize {
    (word & INDEX_MASK) as usize
}

#[derive(Debug)]
pub(super) struct SpillStore<S> {
    shards: Box<[Mutex<Shard<S>>]>,
    /// How many slots belong to a shard, at most.
    slots: usize,
}

/// The states of some sets, and the places of those that have left.
#[derive(Debug)]
pub(super) struct Shard<S> {
    entries: Vec<Entry<S>>,
    free: Vec<u32>,
}

/// A state and whose it is, in lines of its own: most often in one.
#[derive(Debug)]
#[repr(align(64))]
struct Entry<S>(Option<(EntryOwner, VersionedState<S>)>);

/// The fingerprint of an [`KeyId`], and so much of its home as there is room for. It is there to be
/// sure: whose an entry is follows from the slot that names it, read while the shard is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EntryOwner(u64);

impl From<KeyId> for EntryOwner {
    fn from(id: KeyId) -> Self {
        Self(id.fingerprint | (id.home as u64) << FINGERPRINT_BITS)
    }
}

/// A state, and the regime that made it.
#[derive(Debug)]
pub(super) struct VersionedState<S> {
    pub(super) state: S,
    pub(super) regime: u64,
}

impl<S> SpillStore<S> {
    /// For a table of this many slots, of which `groups` may each have a shard of their own.
    pub(super) fn new(groups: usize, slots: usize) -> Self {
        // As many as an index can tell apart stand in one.
        let least = (slots >> (INDEX_BITS - 1)) + 1;
        let shards = groups.min(least.max(4_096));
        Self {
            shards: (0..shards).map(|_| Mutex::new(Shard::new())).collect(),
            slots: groups.div_ceil(shards) * slots.div_ceil(groups),
        }
    }

    pub(super) fn shard(&self, group: usize) -> MutexGuard<'_, Shard<S>> {
        lock(&self.shards[group % self.shards.len()])
    }

    /// The most bytes that [`size`](Self::size) answers, if a state holds so many.
    pub(super) fn most_bytes(&self, held: usize) -> usize {
        // A state stands here already while it takes the place of another.
        let states = self.slots + 1;
        let entry = size_of::<Entry<S>>() + size_of::<u32>();
        let own = states.next_power_of_two().max(4) * entry;
        let shard = held.saturating_mul(states).saturating_add(own);
        shard.saturating_mul(self.shards.len())
    }

    /// How many states there are, and the bytes of them and of what holds them; `held` tells what a
    /// state has allocated.
    pub(super) fn size(&self, held: impl Fn(&S) -> usize) -> (usize, usize) {
        self.shards.iter().fold((0, 0), |(states, bytes), shard| {
            let shard = lock(shard);
            let held: usize = shard.iter().map(|kept| held(&kept.state)).sum();
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

    /// Where the state stands from now on.
    pub(super) fn insert(&mut self, id: KeyId, kept: VersionedState<S>) -> usize {
        let entry = Entry(Some((id.into(), kept)));
        if let Some(index) = self.free.pop() {
            self.entries[index as usize] = entry;
            index as usize
        } else {
            self.entries.push(entry);
            self.entries.len() - 1
        }
    }

    pub(super) fn get(&self, index: usize, id: KeyId) -> Option<&VersionedState<S>> {
        match self.entries.get(index) {
            Some(Entry(Some((owner, kept)))) if *owner == id.into() => Some(kept),
            _ => None,
        }
    }

    pub(super) fn get_mut(&mut self, index: usize, id: KeyId) -> Option<&mut VersionedState<S>> {
        match self.entries.get_mut(index) {
            Some(Entry(Some((owner, kept)))) if *owner == id.into() => Some(kept),
            _ => None,
        }
    }

    pub(super) fn remove(&mut self, index: usize, id: KeyId) -> Option<VersionedState<S>> {
        self.get(index, id)?;
        // As many were pushed, and an index has 24 bits.
        self.free.push(u32::try_from(index).ok()?);
        self.entries[index].0.take().map(|(_, kept)| kept)
    }

    fn iter(&self) -> impl Iterator<Item = &VersionedState<S>> {
        let entries = self.entries.iter().filter_map(|entry| entry.0.as_ref());
        entries.map(|(_, kept)| kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{Algorithm, SlidingLog};

    #[test]
    fn a_log_of_a_few_moments_is_one_line() {
        assert_eq!(size_of::<Entry<<SlidingLog as Algorithm>::State>>(), 64);
    }
}
