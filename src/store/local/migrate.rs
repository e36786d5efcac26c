//! Replaces the algorithm while the table is in use.
//!
//! A change is published, and each set migrates when it is next used, with the next few of the table.
//! A second change first migrates those that are left.

use super::epoch::{Change, Epoch};
use super::slot::{Header, MAX_SLOTS, SlotWords};
use super::spill::{is_spilled, spill_index, spilled_word};
use super::table::Table;
use super::transition::Effect;
use super::user_code::Running;
use crate::algorithm::{Inherit, Words};
use crate::clock::Tick;
use crate::error::ConfigError;
use crate::sync::{MutexGuard, lock, try_lock};

/// How many sets migrate when one is used.
const MOST_AT_ONCE: usize = 64;
/// How many sets migrate in one request if the next change is due.
const MOST_IF_DUE: usize = 1 << 16;

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
    ) -> Result<(), ConfigError> {
        let is_user_code = self.epochs.current().facts.is_user_code;
        let running = Running::enter(is_user_code || algorithm.facts().is_user_code);
        let _running = running.ok_or(ConfigError::Unsupported {
            what: "another algorithm for the table of an algorithm that runs",
            instead: "change it when no decision is made",
        })?;
        let mut walk = self.settle();
        let now = clock();
        A::rebase(&mut algorithm, now);
        self.publish(&mut walk, algorithm, now, Change::Algorithm(inherit));
        Ok(())
    }

    /// Lets the algorithm pack its states for later times, if that is due and the last change is done.
    #[cold]
    pub(super) fn rebase(&self, now: Tick) {
        // Otherwise another thread does it. A state that does not pack until then is spilled.
        let Some(mut walk) = try_lock(&self.change_lock) else {
            return;
        };
        if !self.advance(&mut walk, MOST_IF_DUE) {
            return;
        }
        let mut algorithm = self.epochs.current().algorithm.clone();
        let due = algorithm.facts().rebase_at;
        A::rebase(&mut algorithm, now);
        // The last moment of the clock is always due.
        if due <= now && now < algorithm.facts().rebase_at {
            self.publish(&mut walk, algorithm, now, Change::Rebase);
        }
    }

    fn publish(&self, walk: &mut usize, algorithm: A, now: Tick, change: Change) {
        self.epochs.change(algorithm, now, change);
        *walk = 0;
        if lock(&self.shared_state).is_some() {
            let view = self.epochs.current();
            self.update_shared(&view, now, &mut |_, _| Effect::Changed);
        }
    }

    /// Migrates the next `most` sets. Returns whether that were the last ones.
    fn advance(&self, walk: &mut usize, most: usize) -> bool {
        let view = self.epochs.current();
        let end = self.sets.len.min(walk.saturating_add(most));
        for at in *walk..end {
            while !self.sets.set(at).load_header().is_of_epoch(view.number) {
                self.migrate_set(&view, at);
            }
        }
        *walk = end;
        end == self.sets.len
    }

    /// Migrates the sets that are left, and lets no change begin until the guard is dropped: all states are
    /// of the current algorithm until then.
    pub(super) fn settle(&self) -> MutexGuard<'_, usize> {
        let mut walk = lock(&self.change_lock);
        self.advance(&mut walk, usize::MAX);
        walk
    }

    /// Whether a set with this header is in the epoch of `view`. If it is not, migrates it unless the
    /// view is old: the caller starts again.
    #[inline]
    pub(super) fn is_current(&self, view: &Epoch<A>, at: usize, header: Header) -> bool {
        let is_current = header.is_of_epoch(view.number);
        if !is_current {
            self.catch_up(view, at);
        }
        is_current
    }

    #[cold]
    fn catch_up(&self, view: &Epoch<A>, at: usize) {
        self.migrate_set(view, at);
        if let Some(mut walk) = try_lock(&self.change_lock) {
            self.advance(&mut walk, MOST_AT_ONCE);
        }
    }

    /// Migrates all states of a set to the epoch of `view`, if it is in the one before and no other thread
    /// writes it meanwhile.
    fn migrate_set(&self, view: &Epoch<A>, at: usize) {
        let (sets, set) = (&self.sets, self.sets.set(at));
        let width = sets.state_words;
        // Those that are stored outside, then those that were: dropped after the locks are released.
        let mut outside: [Option<A::State>; MAX_SLOTS] = Default::default();
        let mut shard = self.spill.shard(sets.group_of(at));
        let old = set.snapshot();
        if !old.header.is_of_epoch(view.number.wrapping_sub(1)) {
            return;
        }
        let (mut tags, mut states) = (old.tags, old.states);
        for slot in (0..set.slots()).filter(|slot| old.tags[*slot] != 0) {
            let words = old.states[slot];
            let state = if is_spilled(words[0]) {
                let id = sets.key_id_at(at, old.tags[slot]);
                shard.get(spill_index(words[0]), id).cloned()
            } else {
                Some(A::unpack_from(&view.past, &words[..width]))
            };
            states[slot] = SlotWords::default();
            match state.and_then(|state| view.migrate(state)) {
                None => tags[slot] = 0,
                Some(state)
                    if A::pack_into(&view.algorithm, &state, &mut states[slot][..width]) => {}
                Some(state) => outside[slot] = Some(state),
            }
        }
        let Some(mut locked) = set.try_lock(old.header) else {
            return;
        };
        for slot in 0..set.slots() {
            let id = sets.key_id_at(at, old.tags[slot]);
            let was_outside = old.tags[slot] != 0 && is_spilled(old.states[slot][0]);
            let removed = if was_outside {
                shard.remove(spill_index(old.states[slot][0]), id)
            } else {
                None
            };
            if let Some(state) = outside[slot].take() {
                let until = view.algorithm.forgettable_at(&state);
                states[slot] = spilled_word(shard.insert(id, state), until);
            }
            outside[slot] = removed;
            locked.write_state(slot, &states[slot]);
            locked.write_tag(slot, tags[slot]);
        }
        locked.set_epoch(view.number);
    }
}

#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod tests {
    use std::convert::identity;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;
    use crate::algorithm::{Algorithm, TokenBucket};
    use crate::decision::Decision;
    use crate::quota::Quota;
    use crate::store::local::{overflow::Overflow, table::Request};

    type Buckets = Table<TokenBucket>;

    fn bucket(limit: u64) -> TokenBucket {
        TokenBucket::new(Quota::per_second(limit))
    }

    fn table(capacity: usize) -> Buckets {
        Table::new(bucket(100), capacity, Overflow::Deny, Tick::ZERO)
    }

    fn set(table: &Buckets, limit: u64) {
        let set = table.set_algorithm(bucket(limit), || Tick::ZERO, Inherit::AsIs);
        set.expect("no algorithm of a user runs");
    }

    /// Decides as `Local` does.
    fn decide(table: &Buckets, key: u64) -> Decision {
        let request = Request {
            now: Tick::ZERO,
            cost: 1,
            admit_only: false,
        };
        table.decide(table.locate(key), request, identity, || {
            let decide = |bucket: &TokenBucket, state: &mut _| bucket.decide(state, Tick::ZERO, 1);
            let decided = table.transition(key, Tick::ZERO, true, decide);
            decided.expect("a table that is not full")
        })
    }

    /// Shows promise 47.
    #[test]
    fn the_fast_path_returns_after_a_change() {
        let table = table(100_000);
        let attempts = || table.attempts.load(Relaxed);
        let keys = [7, 1 << 60, u64::MAX];
        for limit in [97, 714, 100] {
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

    /// Shows promise 47.
    #[test]
    fn a_change_migrates_no_set_and_the_next_one_those_that_are_left() {
        let table = table(100_000);
        let migrated = |epoch| {
            let headers = (0..table.sets.len).map(|at| table.sets.set(at).load_header());
            headers.filter(|header| header.is_of_epoch(epoch)).count()
        };
        set(&table, 200);
        assert_eq!(migrated(1), 0);
        let _ = decide(&table, 7);
        assert_eq!(migrated(1), 1 + MOST_AT_ONCE - 1, "and the next few");
        set(&table, 300);
        assert_eq!([migrated(1), migrated(2)], [table.sets.len, 0]);
    }

    /// Decisions of two threads on one key, and changes without a pause. A decision starts again
    /// only if a change was published or the other thread has written the set.
    ///
    /// Shows promise 47.
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
