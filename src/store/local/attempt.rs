//! The slow path: finding the slot of a key and changing its state.
//!
//! This code moves words and tags and does not depend on the type of a state, so it is compiled
//! once for all algorithms. It accesses the states through [`StateOps`].

use super::overflow::{Counters, Overflow};
use super::probe::make_tag;
use super::sets::Sets;
use super::slot::{Header, Set, SlotWords};
use super::spill::{KeyId, is_spilled, spill_index, spilled_word};
use crate::clock::Tick;

/// The result of one try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TryResult {
    Done,
    /// No slot becomes free before this time.
    Full(Tick),
    /// Another thread has written the set or replaced the algorithm in between.
    Retry,
}

/// Operations on the states of one algorithm.
pub(super) trait StateOps {
    /// The epoch of the current algorithm.
    fn epoch(&self) -> u64;

    /// Whether the algorithm may use this table while it runs.
    fn is_user_code(&self) -> bool;

    /// Whether the operation was denied when it last ran. Never for one that takes nothing.
    fn was_denied(&self) -> bool;

    /// Changes the state in `words` and packs it into `next`. If the new state does not fit, keeps it
    /// for [`spill`](Self::spill) and returns the time at which it expires.
    fn update(&mut self, words: &SlotWords, next: &mut SlotWords) -> Option<Tick>;

    /// Changes the state of a new key and keeps it for [`pack`](Self::pack) or
    /// [`spill`](Self::spill). Returns the time at which it expires.
    fn create(&mut self, now: Tick) -> Tick;

    /// Changes a copy of another key's state and keeps it in place of the one from `create`.
    /// Returns the time at which it expires.
    ///
    /// The other state is the one in `words`. If that is spilled, it is the state of `id` in the
    /// locked shard; returns `None` if it is no longer there.
    fn inherit(&mut self, words: &SlotWords, id: KeyId) -> Option<Tick>;

    /// Packs the kept state. Returns false if it does not fit.
    fn pack(&mut self, words: &mut SlotWords) -> bool;

    /// Locks the spilled states of a group of sets until the attempt ends, or until
    /// [`unlock_shard`](Self::unlock_shard).
    fn lock_shard(&mut self, group: usize);

    /// Unlocks them, if they are locked.
    fn unlock_shard(&mut self);

    /// Moves the kept state to the locked shard. Returns its index.
    fn spill(&mut self, id: KeyId) -> usize;

    /// Removes a state from the locked shard.
    fn remove(&mut self, index: usize, id: KeyId);

    /// The time at which the state in a slot expires.
    fn forgettable_at(&self, words: &SlotWords) -> Tick;

    /// Whether the key in a slot of set `at` would be denied any cost.
    fn is_exhausted(&self, at: usize, tag: u64, words: &SlotWords, now: Tick) -> bool;

    /// Changes a spilled state whose slot is at `probe` of the key's probe sequence.
    fn update_spilled(&mut self, id: KeyId, probe: usize) -> TryResult;

    /// Changes the state shared by all keys without a slot.
    fn run_shared(&mut self, now: Tick) -> TryResult;

    /// Migrates all states of a set to the current algorithm.
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
    /// Changes the state of a key. If `keep` is set, a key without a slot gets one unless its new
    /// state has expired already.
    #[inline(never)]
    pub(super) fn attempt(
        &self,
        ops: &mut dyn StateOps,
        id: KeyId,
        now: Tick,
        keep: bool,
    ) -> TryResult {
        let mut created = None;
        loop {
            let (home, found) = self.sets.set(id.home).lookup(id.fingerprint);
            if !is_of_epoch(home, ops) {
                return ops.migrate_set(id.home);
            }
            if let Some(found) = found {
                return self.update(ops, home, found, id, 0);
            }
            if let Some(result) = self.attempt_outside(ops, id, home) {
                return result;
            }
            if let Some(until) = created {
                return self.insert(ops, id, home, now, until);
            }
            let until = ops.create(now);
            if !keep || until <= now {
                return TryResult::Done;
            }
            if !ops.is_user_code() {
                return self.insert(ops, id, home, now, until);
            }
            // User code may have written the set, or even inserted this key: look again.
            created = Some(until);
        }
    }

    /// Changes the state of a key that is not in its home set, whose header is `home`. `None` if it is in
    /// none of the further sets.
    #[inline(never)]
    pub(super) fn attempt_outside(
        &self,
        ops: &mut dyn StateOps,
        id: KeyId,
        home: Header,
    ) -> Option<TryResult> {
        for probe in 1..=home.probe_len() {
            let at = self.sets.probes.set_index(id.home, probe);
            let (header, found) = self.sets.set(at).lookup(make_tag(id.fingerprint, probe));
            let Some(found) = found else { continue };
            if !is_of_epoch(header, ops) {
                return Some(ops.migrate_set(at));
            }
            return Some(self.update(ops, header, found, id, probe));
        }
        None
    }

    /// Changes the state that was read from `slot` of the set at `probe`.
    fn update(
        &self,
        ops: &mut dyn StateOps,
        header: Header,
        (slot, words): (usize, SlotWords),
        id: KeyId,
        probe: usize,
    ) -> TryResult {
        if is_spilled(words[0]) {
            return ops.update_spilled(id, probe);
        }
        let set = self.sets.set(self.sets.probes.set_index(id.home, probe));
        let mut next = SlotWords::default();
        if let Some(until) = ops.update(&words, &mut next) {
            return self.spill(ops, set, header, (slot, id), until);
        }
        if next != words {
            let Some(mut locked) = set.try_lock(header) else {
                return TryResult::Retry;
            };
            locked.write_words(slot, &next);
            locked.set_denied(slot, ops.was_denied());
        } else if ops.was_denied() && !header.is_denied(slot) {
            set.mark_denied(header, slot);
        }
        TryResult::Done
    }

    /// Removes a key.
    #[inline(never)]
    pub(super) fn remove(&self, ops: &mut dyn StateOps, id: KeyId) {
        // An insertion after this read counts as one after the removal.
        let (home, _) = self.sets.set(id.home).lookup(0);
        for probe in 0..=home.probe_len() {
            let set = self.sets.set(self.sets.probes.set_index(id.home, probe));
            let tag = make_tag(id.fingerprint, probe);
            while let (header, Some((slot, words))) = set.lookup(tag) {
                if is_spilled(words[0]) {
                    ops.lock_shard(self.sets.group_of(id.home));
                }
                if let Some(mut locked) = set.try_lock(header) {
                    locked.write_tag(slot, 0);
                    drop(locked);
                    if is_spilled(words[0]) {
                        ops.remove(spill_index(words[0]), id);
                    }
                }
                ops.unlock_shard();
            }
        }
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
        locked.write_words(slot, &spilled_word(index, until));
        TryResult::Done
    }
}

/// Whether the states of a set were packed by the current algorithm.
pub(super) fn is_of_epoch(header: Header, ops: &dyn StateOps) -> bool {
    header.is_of_epoch(ops.epoch())
}
