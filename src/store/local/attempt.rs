//! The slow path: finding the slot of a key and changing its state.
//!
//! It moves words and tags and does not depend on the type of a state, so it is compiled once for
//! all algorithms. It reaches the states through [`StateOps`].

use super::overflow::{Counters, Overflow};
use super::probe::make_tag;
use super::sets::Sets;
use super::slot::{Header, Set, Words};
use super::spill::{KeyId, is_spilled, spilled_word};
use crate::clock::Tick;

/// The result of one try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TryResult {
    Done,
    /// No slot is free before this moment.
    Full(Tick),
    /// The set was written or the algorithm was replaced in between.
    Retry,
}

/// Operations on the states of one algorithm.
pub(super) trait StateOps {
    /// The epoch of the algorithm that decides.
    fn epoch(&self) -> u64;

    /// Changes the state in `words` and packs it into `next`. If it does not pack, it is kept for
    /// [`spill`](Self::spill), and the moment from which it may be forgotten is returned.
    fn update(&mut self, words: &Words, next: &mut Words) -> Option<Tick>;

    /// Changes the state of a new key and keeps it. Returns the moment from which it may be
    /// forgotten.
    fn create(&mut self, now: Tick) -> Tick;

    /// Changes a copy of another key's state and keeps that instead: the state in `words`, or if that
    /// is spilled, of `id` in the shard that is locked. `None` if it is no longer there.
    fn inherit(&mut self, words: &Words, id: KeyId) -> Option<Tick>;

    /// Packs the state that is kept; false if it does not pack.
    fn pack(&mut self, words: &mut Words) -> bool;

    /// Locks the spilled states of a group of sets until the attempt ends.
    fn lock_shard(&mut self, group: usize);

    /// Moves the state that is kept to the shard that is locked. Returns its index.
    fn spill(&mut self, id: KeyId) -> usize;

    /// Removes a state from the shard that is locked.
    fn remove(&mut self, index: usize, id: KeyId);

    /// The moment from which the state in a slot may be forgotten.
    fn forgettable_at(&self, words: &Words) -> Tick;

    /// Whether the key in a slot of set `at` is being denied.
    fn is_denied(&self, at: usize, tag: u64, words: &Words, now: Tick) -> bool;

    /// Changes a spilled state. Its slot is at `probe` of the key's probe sequence.
    fn update_spilled(&mut self, id: KeyId, probe: usize) -> TryResult;

    /// Changes the state that all keys without a slot share.
    fn run_shared(&mut self, now: Tick) -> TryResult;

    /// Migrates all states of a set to the algorithm that decides.
    fn migrate_set(&self, at: usize) -> TryResult;
}

/// The table without its states.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) sets: Sets,
    pub(super) overflow: Overflow,
    pub(super) counters: Counters,
}

impl Core {
    /// Changes the state of a key. A key without a slot gets one if `keep` is set and the new state
    /// has not expired.
    #[inline(never)]
    pub(super) fn attempt(
        &self,
        ops: &mut dyn StateOps,
        id: KeyId,
        now: Tick,
        keep: bool,
    ) -> TryResult {
        let (home, found) = self.sets.set(id.home).lookup(id.fingerprint);
        if !is_of_epoch(home, ops) {
            return ops.migrate_set(id.home);
        }
        if let Some(found) = found {
            return self.update(ops, home, found, id, 0);
        }
        for probe in 1..=home.probe_len() {
            let at = self.sets.probes.set_index(id.home, probe);
            let (header, found) = self.sets.set(at).lookup(make_tag(id.fingerprint, probe));
            let Some(found) = found else { continue };
            if !is_of_epoch(header, ops) {
                return ops.migrate_set(at);
            }
            return self.update(ops, header, found, id, probe);
        }
        self.insert(ops, id, home, now, keep)
    }

    /// Changes a state that was read from its slot.
    fn update(
        &self,
        ops: &mut dyn StateOps,
        header: Header,
        (slot, words): (usize, Words),
        id: KeyId,
        probe: usize,
    ) -> TryResult {
        if is_spilled(words[0]) {
            return ops.update_spilled(id, probe);
        }
        let set = self.sets.set(self.sets.probes.set_index(id.home, probe));
        let mut next = Words::default();
        if let Some(until) = ops.update(&words, &mut next) {
            return self.spill(ops, set, header, (slot, id), until);
        }
        if next != words {
            let Some(mut locked) = set.try_lock(header) else {
                return TryResult::Retry;
            };
            locked.write_state(slot, &next);
        }
        TryResult::Done
    }

    /// Moves a state that no longer fits its slot to the spill store.
    fn spill(
        &self,
        ops: &mut dyn StateOps,
        set: Set<'_>,
        header: Header,
        (slot, id): (usize, KeyId),
        until: Tick,
    ) -> TryResult {
        ops.lock_shard(self.sets.group_of(id.home));
        let index = ops.spill(id);
        let Some(mut locked) = set.try_lock(header) else {
            ops.remove(index, id);
            return TryResult::Retry;
        };
        locked.write_state(slot, &spilled_word(index, until));
        TryResult::Done
    }
}

/// Whether the states of a set are those of the algorithm that decides.
pub(super) fn is_of_epoch(header: Header, ops: &dyn StateOps) -> bool {
    header.epoch() == ops.epoch() & 0xFFF
}
