//! Replaces the algorithm while the table is in use.

use super::attempt::TryResult;
use super::epoch::{EpochView, MAX_EPOCHS};
use super::slot::{MAX_SLOTS, Words};
use super::spill::{VersionedState, is_spilled, spill_index, spilled_word};
use super::table::Table;
use crate::algorithm::{Algorithm, Inherit, Packing};
use crate::clock::Tick;
use crate::sync::lock;

impl<A: Algorithm> Table<A> {
    /// Makes `algorithm` the current one from `now` on. Its states must fit the slots.
    pub(super) fn set_algorithm(&self, algorithm: A, now: Tick, inherit: Inherit) {
        let _guard = lock(&self.change_lock);
        if self.epochs.current().history_len() >= MAX_EPOCHS {
            self.migrate_all(now);
            self.epochs.truncate_history();
        }
        self.epochs.change(algorithm, now, inherit);
    }

    fn migrate_all(&self, now: Tick) {
        let view = self.epochs.current();
        for at in 0..self.core.sets.len {
            while self.core.sets.set(at).lookup(0).0.epoch() != view.epoch() & 0xFFF {
                let _ = self.migrate_set(&view, at);
            }
        }
        let _ = self.run_shared(&view, now, &mut |_, _| ());
    }

    /// Migrates all states of a set to the algorithm of `view`.
    #[cold]
    #[inline(never)]
    pub(super) fn migrate_set(&self, view: &EpochView<'_, A>, at: usize) -> TryResult {
        let (sets, width) = (&self.core.sets, self.state_words());
        let set = sets.set(at);
        let algorithm = view.algorithm();
        let mut snapshot = set.snapshot();
        let Some(behind) = view.epochs_behind(snapshot.header.epoch()) else {
            return TryResult::Retry;
        };
        if behind == 0 {
            return TryResult::Retry;
        }
        let before = view.algorithm_before(behind);
        let mut shard = None;
        let mut spilled: [Option<(Tick, A::State)>; MAX_SLOTS] = Default::default();
        let mut slot = 0;
        while slot < set.slots() {
            let words = &mut snapshot.states[slot];
            if snapshot.tags[slot] == 0 {
                slot += 1;
                continue;
            }
            if is_spilled(words[0]) {
                let id = sets.key_id_at(at, snapshot.tags[slot]);
                let shard = shard.get_or_insert_with(|| self.spill.shard(sets.group_of(at)));
                let index = spill_index(words[0]);
                let Some(kept) = shard.get_mut(index, id) else {
                    return TryResult::Retry;
                };
                let Some(behind) = view.epochs_behind(kept.epoch & 0xFFF) else {
                    return TryResult::Retry;
                };
                if !view.migrate_state(&mut kept.state, behind) {
                    kept.state = algorithm.fresh(view.since());
                }
                kept.epoch = view.epoch();
                *words = spilled_word(index, algorithm.forgettable_at(&kept.state));
            } else {
                let mut state = A::Packing::unpack_from(before, &words[..width]);
                let mut next = Words::default();
                if !view.migrate_state(&mut state, behind) {
                    snapshot.tags[slot] = 0;
                } else if A::Packing::pack_into(algorithm, &state, &mut next[..width]) {
                    *words = next;
                } else {
                    spilled[slot] = Some((algorithm.forgettable_at(&state), state));
                    shard.get_or_insert_with(|| self.spill.shard(sets.group_of(at)));
                }
            }
            slot += 1;
        }
        let Some(mut locked) = set.try_lock(snapshot.header) else {
            return TryResult::Retry;
        };
        for (slot, spilled) in spilled.into_iter().enumerate().take(set.slots()) {
            if let (Some((until, state)), Some(shard)) = (spilled, &mut shard) {
                let id = sets.key_id_at(at, snapshot.tags[slot]);
                let epoch = view.epoch();
                let index = shard.insert(id, VersionedState { state, epoch });
                snapshot.states[slot] = spilled_word(index, until);
            }
            locked.write_state(slot, &snapshot.states[slot]);
            locked.write_tag(slot, snapshot.tags[slot]);
        }
        locked.set_epoch(view.epoch());
        TryResult::Retry
    }
}
