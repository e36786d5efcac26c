//! Replaces the algorithm while the table is in use.
//!
//! A change is published, and each set migrates when it is next used. The history keeps the epochs
//! that sets may still be in. To bound it, each change also migrates the next few sets of the
//! table, in turn: a set misses at most as many changes as it takes to reach all of them.

use std::mem::swap;
use std::ops::Range;

use super::attempt::{Core, TryResult};
use super::epoch::{Change, EpochView};
use super::slot::{MAX_SLOTS, SlotWords};
use super::spill::{KeyId, Shard, VersionedState, is_spilled, spill_index, spilled_word};
use super::states::Effect;
use super::table::Table;
use super::walk::Walk;
use crate::algorithm::{Inherit, Words};
use crate::clock::Tick;
use crate::store::cold;
use crate::sync::{MutexGuard, lock, try_lock};

impl Core {
    /// Calls `migrate` for each of these sets until it is in `epoch`.
    #[inline(never)]
    fn migrate_sets(&self, range: Range<usize>, epoch: u64, migrate: &dyn Fn(usize)) {
        for at in range {
            while !self.sets.header(at).is_of_epoch(epoch) {
                migrate(at);
            }
        }
    }
}

impl<A: Words> Table<A> {
    /// Makes `algorithm` the current one from now on. Its states may need more words than the slots
    /// have; those are spilled.
    ///
    /// Reads the clock while no other thread changes the algorithm, so that changes are in the
    /// order of their times.
    pub(super) fn set_algorithm(
        &self,
        mut algorithm: A,
        clock: impl FnOnce() -> Tick,
        inherit: Inherit,
    ) {
        let walk = lock(&self.change_lock);
        let now = clock();
        cold::rebase(&mut algorithm, now);
        self.change(walk, algorithm, now, Change::Algorithm(inherit));
    }

    /// Lets the algorithm pack its states for later times if it needs to.
    pub(super) fn rebase_if_due(&self, now: Tick) {
        if self.epochs.current().facts().rebase_at <= now {
            self.rebase(now);
        }
    }

    #[cold]
    #[inline(never)]
    fn rebase(&self, now: Tick) {
        // Otherwise another thread does it. A state that does not pack until then is spilled.
        let Some(walk) = try_lock(&self.change_lock) else {
            return;
        };
        let mut algorithm = self.epochs.current().algorithm().clone();
        let due = algorithm.facts().rebase_at;
        cold::rebase(&mut algorithm, now);
        // The last moment of the clock is always due.
        if due <= now && now < algorithm.facts().rebase_at {
            self.change(walk, algorithm, now, Change::Rebase);
        }
    }

    fn change(&self, mut walk: MutexGuard<'_, Walk>, algorithm: A, now: Tick, change: Change) {
        let (step, changes) = Walk::pace(self.core.sets.len);
        // The sets of the next step have missed all changes since the last one that reached them.
        self.epochs.change(algorithm, now, change, changes + 1);
        let view = self.epochs.current();
        let is_shared = lock(&self.shared_state).kept.is_some();
        if is_shared {
            let mut step = |_: &A, _: &mut A::State| Effect::Changed;
            // Another thread may write the state of an algorithm that is not of this crate in
            // between.
            while self.update_shared(&view, now, &mut step) != TryResult::Done {}
        }
        let range = walk.advance(step, self.core.sets.len);
        let migrate = &|at| {
            let _ = self.migrate_set(&view, at);
        };
        self.core.migrate_sets(range, view.epoch(), migrate);
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
        let Some(before) = view.algorithm_before(behind) else {
            return TryResult::Retry;
        };
        // Then no lock is held while states are rescaled; see `update_copy`.
        let is_user_code = view.facts().is_user_code || before.facts().is_user_code;
        let mut copies: [Option<(VersionedState<A::State>, u64)>; MAX_SLOTS] = Default::default();
        let mut guard = None;
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
                let shard = guard.get_or_insert_with(|| self.spill.shard(sets.group_of(at)));
                let index = spill_index(words[0]);
                let mut kept = shard.get_mut(index, id);
                let mut copy = None;
                if is_user_code {
                    let cloned = kept.map(|kept| kept.clone());
                    copy = cloned.map(|kept| (kept, shard.stamp_of(index)));
                    guard = None;
                    kept = copy.as_mut().map(|(kept, _)| kept);
                }
                let Some(kept) = kept else {
                    return TryResult::Retry;
                };
                let Some(behind) = view.epoch().checked_sub(kept.epoch) else {
                    return TryResult::Retry;
                };
                if !view.migrate_state(&mut kept.state, behind) {
                    kept.state = cold::fresh(algorithm, view.since());
                }
                kept.epoch = view.epoch();
                *words = spilled_word(index, cold::forgettable_at(algorithm, &kept.state));
                copies[slot] = copy;
            } else {
                let mut state = cold::unpack(before, &words[..width]);
                let mut next = SlotWords::default();
                if !view.migrate_state(&mut state, behind) {
                    snapshot.tags[slot] = 0;
                } else if cold::pack(algorithm, &state, &mut next[..width]) {
                    *words = next;
                } else {
                    spilled[slot] = Some((cold::forgettable_at(algorithm, &state), state));
                    if !is_user_code {
                        guard.get_or_insert_with(|| self.spill.shard(sets.group_of(at)));
                    }
                }
            }
            slot += 1;
        }
        if is_user_code {
            let shard = guard.insert(self.spill.shard(sets.group_of(at)));
            let mut entries = copies.iter().zip(&snapshot.states);
            if entries.any(|(copy, words)| is_stale(shard, copy.as_ref(), words)) {
                return TryResult::Retry;
            }
        }
        let Some(mut locked) = set.try_lock(snapshot.header) else {
            return TryResult::Retry;
        };
        for (slot, spilled) in spilled.into_iter().enumerate().take(set.slots()) {
            // Without the first condition, the code would stand in tables that make no copies.
            if is_user_code {
                if let (Some((copy, _)), Some(shard)) = (&mut copies[slot], &mut guard) {
                    let id = sets.key_id_at(at, snapshot.tags[slot]);
                    let index = spill_index(snapshot.states[slot][0]);
                    replace_copied(shard, index, id, copy);
                }
            }
            if let (Some((until, state)), Some(shard)) = (spilled, &mut guard) {
                let id = sets.key_id_at(at, snapshot.tags[slot]);
                let epoch = view.epoch();
                let index = shard.insert(id, VersionedState { state, epoch });
                if is_user_code {
                    shard.stamp(index);
                }
                snapshot.states[slot] = spilled_word(index, until);
            }
            locked.write_words(slot, &snapshot.states[slot]);
            locked.write_tag(slot, snapshot.tags[slot]);
        }
        locked.set_epoch(view.epoch());
        drop(locked);
        drop(guard);
        TryResult::Retry
    }
}

/// Swaps a spilled state with the migrated copy of it. The caller drops the old state after the lock.
fn replace_copied<S>(shard: &mut Shard<S>, index: usize, id: KeyId, copy: &mut VersionedState<S>) {
    if let Some(kept) = shard.get_mut(index, id) {
        swap(kept, copy);
    }
    shard.stamp(index);
}

/// Whether the spilled state in a slot was written since it was copied.
fn is_stale<S>(
    shard: &Shard<S>,
    copy: Option<&(VersionedState<S>, u64)>,
    words: &SlotWords,
) -> bool {
    copy.is_some_and(|(_, stamp)| *stamp != shard.stamp_of(spill_index(words[0])))
}

#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod tests {
    use std::convert::identity;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;
    use crate::algorithm::{Algorithm, TokenBucket};
    use crate::decision::Decision;
    use crate::quota::Quota;
    use crate::store::local::overflow::Overflow;

    type Buckets = Table<TokenBucket>;

    fn bucket(limit: u64) -> TokenBucket {
        TokenBucket::new(Quota::per_second(limit))
    }

    fn table(capacity: usize) -> Buckets {
        Table::new(bucket(100), capacity, Overflow::Deny, Tick::ZERO)
    }

    fn set(table: &Buckets, limit: u64) {
        table.set_algorithm(bucket(limit), || Tick::ZERO, Inherit::AsIs);
    }

    /// Decides as `Local` does.
    fn decide(table: &Buckets, key: u64) -> Decision {
        table.decide(table.locate(key), Tick::ZERO, 1, identity, |_| {
            let decide = |bucket: &TokenBucket, state: &mut _| bucket.decide(state, Tick::ZERO, 1);
            let decided = table.transition(key, Tick::ZERO, true, decide);
            decided.expect("a table that is not full")
        })
    }

    #[test]
    fn the_fast_path_returns_after_a_change() {
        let table = table(100_000);
        let attempts = || table.attempts.load(Relaxed);
        let keys = [7, 1 << 60, u64::MAX];
        for limit in [97, 714, 100, 9_999_999_967] {
            let _ = keys.map(|key| decide(&table, key));
            set(&table, limit);
            let before = attempts();
            let _ = keys.map(|key| decide(&table, key));
            let migrated = attempts() - before;
            assert!((3..=6).contains(&migrated), "{migrated} tries");
            let before = attempts();
            for _ in 0..10 {
                let _ = keys.map(|key| decide(&table, key));
            }
            assert_eq!(attempts(), before, "a decision took the slow path");
        }
    }

    #[test]
    fn a_change_migrates_only_the_sets_of_its_step() {
        let table = table(100_000);
        assert!(table.core.sets.len > 10 * Walk::LEAST_STEP);
        for changes in 1..=10 {
            set(&table, 100 + changes);
            let headers = (0..table.core.sets.len).map(|at| table.core.sets.header(at).epoch());
            let migrated = headers.filter(|epoch| *epoch > 0).count();
            assert_eq!(migrated as u64, changes * Walk::LEAST_STEP as u64);
        }
    }

    /// Decisions of two threads on one key, and changes without a pause. A decision starts again
    /// only if a change was published or the other thread has written the set.
    #[test]
    fn changes_without_a_pause_do_not_keep_decisions_from_ending() {
        const CHANGES: u64 = 5_000;
        let table = table(1_000);
        let done = AtomicBool::new(false);
        let decided: u64 = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let mut decided = 0;
                        while !done.load(Relaxed) {
                            let _ = decide(&table, 7);
                            decided += 1;
                        }
                        decided
                    })
                })
                .collect();
            for limit in 0..CHANGES {
                set(&table, 50 + limit % 100);
            }
            done.store(true, Relaxed);
            let readers = readers.into_iter();
            readers.map(|reader| reader.join().expect("no panic")).sum()
        });
        let attempts = table.attempts.load(Relaxed);
        // Per thread and change: the view is old, the migration, and a writer in between.
        let most = 2 * decided + 2 * 3 * CHANGES;
        assert!(attempts <= most, "{attempts} tries of {decided} decisions");
    }
}
