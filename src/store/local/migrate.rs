//! Replacing the algorithm while the table is in use.

use super::epoch::{EpochView, MAX_EPOCHS};
use super::slot::{MAX_SLOTS, Set};
use super::spill::{VersionedState, is_spilled, spill_index, spilled_word};
use super::table::{Table, TryResult};
use crate::algorithm::{Algorithm, Inherit, Packing};
use crate::clock::Tick;
use crate::sync::lock;

impl<A: Algorithm> Table<A> {
    /// Decides by `algorithm` from `now` on. Its states must fit the slots.
    pub(super) fn set_algorithm(&self, algorithm: A, now: Tick, inherit: Inherit) {
        let _one_at_a_time = lock(&self.change_lock);
        if self.epochs.current().history_len() >= MAX_EPOCHS {
            self.migrate_all(now);
            self.epochs.truncate_history();
        }
        self.epochs.change(algorithm, now, inherit);
    }

    pub(super) fn migrate_all(&self, now: Tick) {
        match self.state_words {
            1 => self.migrate_all_sets::<1>(),
            2 => self.migrate_all_sets::<2>(),
            3 => self.migrate_all_sets::<3>(),
            _ => self.migrate_all_sets::<4>(),
        }
        let view = self.epochs.current();
        let _ = self.run_shared(&view, now, &|_: &A, _: &mut A::State| ());
    }

    fn migrate_all_sets<const W: usize>(&self) {
        let view = self.epochs.current();
        for at in 0..self.set_count {
            while self.set::<W>(at).lookup(0).0.epoch() != view.epoch() & 0xFFF {
                let _ = self.migrate_set::<W, ()>(&view, at);
            }
        }
    }

    /// Migrates all states of a set to the algorithm of `view`.
    #[cold]
    #[inline(never)]
    pub(super) fn migrate_set<const W: usize, T>(
        &self,
        view: &EpochView<'_, A>,
        at: usize,
    ) -> TryResult<T> {
        let set = self.set::<W>(at);
        let algorithm = view.algorithm();
        let mut snapshot = set.snapshot();
        let Some(behind) = view.epochs_behind(snapshot.header.epoch()) else {
            return TryResult::StaleEpoch;
        };
        if behind == 0 {
            return TryResult::Retry;
        }
        let before = view.algorithm_before(behind);
        let mut shard = None;
        let mut spilled: [Option<(Tick, A::State)>; MAX_SLOTS] = Default::default();
        let mut slot = 0;
        while slot < Set::<W>::SLOTS {
            let words = &mut snapshot.states[slot];
            if snapshot.tags[slot] == 0 {
                slot += 1;
                continue;
            }
            if is_spilled(words) {
                let id = self.key_id_at(at, snapshot.tags[slot]);
                let shard = shard.get_or_insert_with(|| self.spill.shard(self.group_of(at)));
                let index = spill_index(words[0]);
                let Some(kept) = shard.get_mut(index, id) else {
                    return TryResult::Retry;
                };
                let Some(behind) = view.epochs_behind(kept.epoch & 0xFFF) else {
                    return TryResult::StaleEpoch;
                };
                if !view.migrate_state(&mut kept.state, behind) {
                    kept.state = algorithm.fresh(view.since());
                }
                kept.epoch = view.epoch();
                *words = spilled_word(index, algorithm.forgettable_at(&kept.state));
            } else {
                let mut state = A::Packing::unpack_from(before, words);
                let mut next = [0; W];
                if !view.migrate_state(&mut state, behind) {
                    snapshot.tags[slot] = 0;
                } else if A::Packing::pack_into(algorithm, &state, &mut next) {
                    *words = next;
                } else {
                    spilled[slot] = Some((algorithm.forgettable_at(&state), state));
                    shard.get_or_insert_with(|| self.spill.shard(self.group_of(at)));
                }
            }
            slot += 1;
        }
        let Some(mut locked) = set.try_lock(snapshot.header) else {
            return TryResult::Retry;
        };
        for (slot, spilled) in spilled.into_iter().enumerate().take(Set::<W>::SLOTS) {
            if let (Some((until, state)), Some(shard)) = (spilled, &mut shard) {
                let id = self.key_id_at(at, snapshot.tags[slot]);
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
