//! Spilled states of an algorithm that is not one of this crate's.
//!
//! Such an algorithm may do anything while it runs, also use the table that runs it. So it works on
//! a copy of the state while nothing is locked. Each write of such a state stamps its entry. If the
//! stamp is still the one that was read with the copy, the copy replaces the state.

use std::mem::replace;

use super::attempt::TryResult;
use super::epoch::EpochView;
use super::probe::make_tag;
use super::sets::spin_lock;
use super::slot::Words;
use super::spill::{KeyId, is_spilled, spill_index, spilled_word};
use super::states::{Effect, Step};
use super::table::Table;
use crate::algorithm::Algorithm;
use crate::store::cold;

impl<A: Algorithm> Table<A> {
    /// Runs `step` on a copy of a spilled state and writes it back.
    pub(super) fn update_copy(
        &self,
        view: &EpochView<'_, A>,
        id: KeyId,
        probe: usize,
        step: &mut Step<'_, A>,
    ) -> TryResult {
        let algorithm = view.algorithm();
        let sets = &self.core.sets;
        let at = sets.probes.set_index(id.home, probe);
        let (set, group) = (sets.set(at), sets.group_of(id.home));

        let shard = self.spill.shard(group);
        let tag = make_tag(id.fingerprint, probe);
        let (header, found) = set.lookup(tag);
        let Some((_, words)) = found.filter(|(_, words)| is_spilled(words[0])) else {
            return TryResult::Retry;
        };
        if !header.is_of_epoch(view.epoch()) {
            return TryResult::Retry;
        }
        let index = spill_index(words[0]);
        let stamp = shard.stamp_of(index);
        let Some(kept) = shard.get(index, id) else {
            return TryResult::Retry;
        };
        let is_current = kept.epoch == view.epoch();
        let mut state = kept.state.clone();
        drop(shard);
        if !is_current {
            return self.migrate_set(view, at);
        }

        let effect = step(algorithm, &mut state);
        if effect == Effect::Read {
            return TryResult::Done;
        }
        let mut next = Words::default();
        let packs = cold::pack(algorithm, &state, &mut next[..self.state_words()]);
        if !packs {
            next = spilled_word(index, cold::forgettable_at(algorithm, &state));
        }

        let mut shard = self.spill.shard(group);
        // As for a state that is changed in place: while the shard is locked, no other thread moves
        // the state or its slot.
        let (header, found) = set.lookup(tag);
        let Some((slot, words)) = found.filter(|(_, words)| is_spilled(words[0])) else {
            return TryResult::Retry;
        };
        let is_same = spill_index(words[0]) == index && shard.stamp_of(index) == stamp;
        if !is_same {
            return TryResult::Retry;
        }
        let Some(kept) = shard.get_mut(index, id) else {
            return TryResult::Retry;
        };
        if kept.epoch != view.epoch() {
            return TryResult::Retry;
        }
        let denied = effect == Effect::Denied;
        if next != words || denied != header.is_denied(slot) {
            let mut locked = spin_lock(set);
            locked.write_words(slot, &next);
            locked.set_denied(slot, denied);
        }
        let old = replace(&mut kept.state, state);
        let removed = packs.then(|| shard.remove(index, id));
        shard.stamp(index);
        // Dropping a state may run code that is not of this crate either.
        drop(shard);
        drop((old, removed));
        TryResult::Done
    }
}
