//! What the fast path misses most: keys outside their home set, and new keys.

use super::attempt::{Core, StateOps, TryResult, is_of_epoch};
use super::probe::make_tag;
use super::slot::{Header, Miss, Words};
use super::spill::{KeyId, is_spilled};
use super::states::{Attempt, Effect, Outcome};
use super::table::Table;
use crate::algorithm::Algorithm;
use crate::clock::Tick;
use crate::decision::Decision;
use crate::store::cold;

/// How a decision is made on what the fast path has missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MissedMode {
    /// New keys are inserted.
    Insert,
    /// Only for keys that have a slot.
    #[cfg(feature = "cas")]
    Stored,
    /// The same, and only if the request is admitted.
    #[cfg(feature = "cas")]
    AdmitStored,
}

impl<A: Algorithm> Table<A> {
    /// Decides for a key that the fast path has `missed`, without the slow path. `None` if that is needed;
    /// nothing was taken then.
    #[inline(never)]
    pub(super) fn decide_missed(
        &self,
        missed: Miss,
        hash: u64,
        now: Tick,
        cost: u64,
        mode: MissedMode,
    ) -> Option<Decision> {
        let Miss::Absent(home) = missed else {
            return None;
        };
        self.rebase_if_due(now);
        let mut decision = None;
        let mut step = |algorithm: &A, state: &mut A::State| {
            #[cfg(feature = "cas")]
            if mode == MissedMode::AdmitStored
                && !cold::peek(algorithm, state, now, cost).is_admitted()
            {
                return Effect::Read;
            }
            let decided = cold::decide(algorithm, state, now, cost);
            decision = Some(decided);
            decided.effect()
        };
        let mut attempt = Attempt::new(self, &mut step);
        let id = self.core.sets.key_id(hash);
        let inserts = mode == MissedMode::Insert && cost > 0;
        let done = self
            .core
            .attempt_missed(&mut attempt, id, home, now, inserts);
        drop(attempt);
        decision.filter(|_| done)
    }
}

impl Core {
    /// Changes the state of a key that is not in its home set, whose header is `home`. Returns false if the
    /// slow path is needed; nothing was changed then.
    #[inline(never)]
    fn attempt_missed(
        &self,
        ops: &mut dyn StateOps,
        id: KeyId,
        home: Header,
        now: Tick,
        inserts: bool,
    ) -> bool {
        if home.probe_len() > 0 {
            return self.attempt_outside(ops, id, home) == Some(TryResult::Done);
        }
        inserts && self.insert_at_home(ops, id, home, now).is_some()
    }

    /// Inserts a new key, if no key of its home is outside and the home has a free slot. That is so for most
    /// new keys, and takes half as long as [the slow path](super::insertion).
    fn insert_at_home(
        &self,
        ops: &mut dyn StateOps,
        id: KeyId,
        home: Header,
        now: Tick,
    ) -> Option<()> {
        if !is_of_epoch(home, ops) || ops.is_user_code() {
            return None;
        }
        let set = self.sets.set(id.home);
        // The state of a spilled one would have to be removed.
        let has_expired = |words: &Words| !is_spilled(words[0]) && ops.forgettable_at(words) <= now;
        let slot = set.free_slot(home, &has_expired)?;
        if ops.create(now) <= now {
            return Some(());
        }
        let mut words = Words::default();
        if !ops.pack(&mut words) {
            return None;
        }
        // Only if the set was not written since the key was missed.
        let mut locked = set.try_lock(home)?;
        locked.write_words(slot, &words);
        locked.write_tag(slot, make_tag(id.fingerprint, 0));
        Some(())
    }
}

#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod tests {
    use std::convert::identity;
    use std::hash::BuildHasher;
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::algorithm::{FixedWindow, Inherit, SlidingGrid, SlidingLog, TokenBucket};
    use crate::quota::Quota;
    use crate::store::local::{hash::Seeded, overflow::Overflow};

    fn table<A: Algorithm>(algorithm: &A) -> Table<A> {
        Table::new(algorithm.clone(), 100, Overflow::Deny, Tick::ZERO)
    }

    fn decide_slowly<A: Algorithm>(table: &Table<A>, hash: u64, now: Tick, cost: u64) -> Decision {
        let step = |algorithm: &A, state: &mut A::State| algorithm.decide(state, now, cost);
        let decided = table.transition(hash, now, cost > 0, step);
        decided.expect("a table that is not full")
    }

    fn decide<A: Algorithm>(table: &Table<A>, hash: u64, now: Tick, cost: u64) -> Decision {
        table.decide(hash, now, cost, identity, |missed| {
            let decided = table.decide_missed(missed, hash, now, cost, MissedMode::Insert);
            decided.unwrap_or_else(|| decide_slowly(table, hash, now, cost))
        })
    }

    /// What a table holds: the tags and the states of all sets.
    fn contents<A: Algorithm>(table: &Table<A>) -> Vec<([u64; 8], [Words; 8])> {
        let sets = &table.core.sets;
        let snapshots = (0..sets.len).map(|at| sets.set(at).snapshot());
        snapshots.map(|read| (read.tags, read.states)).collect()
    }

    /// Keys come and expire. Returns how often the slow path was needed, without and with the quick
    /// insertion.
    fn compare<A: Algorithm>(algorithm: &A) -> [u64; 2] {
        let (plain, quick) = (table(algorithm), table(algorithm));
        let hasher = Seeded::default();
        for number in 0..2_000_u64 {
            let now = Tick::from_nanos(number * 100_000_000);
            // Each key comes twice, then not for a while; some cost nothing or too much.
            let hash = hasher.hash_one(number / 2 % 150);
            let cost = if number % 40 > 1 { 1 } else { number % 80 };
            let expected = decide_slowly(&plain, hash, now, cost);
            assert_eq!(decide(&quick, hash, now, cost), expected, "{number}");
        }
        assert!(contents(&quick) == contents(&plain));
        [&plain, &quick].map(|table| table.attempts.load(Ordering::Relaxed))
    }

    #[test]
    fn a_new_key_is_stored_as_by_the_slow_path() {
        let quota = Quota::per_second(10);
        for [plain, quick] in [
            compare(&TokenBucket::new(quota)),
            compare(&FixedWindow::new(quota)),
            compare(&SlidingGrid::new(quota)),
            compare(&SlidingGrid::new(Quota::per_second(1_000)).cells(20)),
        ] {
            assert!(quick < plain / 4, "{quick} of {plain}");
        }
        compare(&SlidingLog::new(quota));
    }

    #[test]
    fn a_key_outside_its_home_is_not_inserted_again() {
        // Of as many keys as the capacity, a tenth is outside. Their states expire at different times.
        let bucket = TokenBucket::new(Quota::per_second(10).burst(40));
        let (plain, quick) = (table(&bucket), table(&bucket));
        let hasher = Seeded::default();
        for number in 0..20_000_u64 {
            let now = Tick::from_nanos(number * 20_000_000);
            let (hash, cost) = (hasher.hash_one(number % 101 % 100), 1 + number % 37);
            let expected = decide_slowly(&plain, hash, now, cost);
            assert_eq!(decide(&quick, hash, now, cost), expected, "{number}");
        }
        assert!(contents(&quick) == contents(&plain));
    }

    #[test]
    fn an_expired_state_outside_the_table_is_removed_by_the_slow_path() {
        let window = FixedWindow::new(Quota::per_second(10));
        let table = table(&window);
        let later = Tick::from_nanos(1 << 60);
        for hash in 1..=4 {
            // So large a debt does not fit its slot.
            let step =
                |window: &FixedWindow, state: &mut _| window.charge(state, Tick::ZERO, 1 << 40);
            table
                .transition(hash, Tick::ZERO, true, step)
                .expect("a free slot");
        }
        assert_eq!(table.stats(later).outside, 4);
        let home = table.core.sets.set(0).lookup(0).0;
        assert!(
            table
                .decide_missed(Miss::Absent(home), 5, later, 1, MissedMode::Insert)
                .is_none()
        );
        assert!(decide(&table, 5, later, 1).is_admitted());
        assert_eq!(table.stats(later).outside, 3);
    }

    #[test]
    fn what_the_quick_insertion_cannot_store_takes_nothing() {
        // So large that a change of the algorithm does not migrate all of it at once.
        let bucket = TokenBucket::new(Quota::per_hour(2));
        let table = Table::new(bucket, 100_000, Overflow::Deny, Tick::ZERO);
        let (hash, same_home, now) = (1 << 63, (1 << 63) + 8, Tick::ZERO);
        let set = table.core.sets.set(table.core.sets.key_id(hash).home);
        let missed = || Miss::Absent(set.lookup(0).0);
        let decide =
            |missed, cost| table.decide_missed(missed, hash, now, cost, MissedMode::Insert);
        assert!(decide(missed(), 0).is_none());
        assert!(decide(Miss::Slow, 1).is_none());
        let unused = missed();
        let too_large = decide(missed(), 100);
        assert!(too_large.is_some_and(|decided| decided.is_denied()));
        let Miss::Absent(header) = unused else {
            unreachable!()
        };
        assert!(set.is_unchanged(header), "an unused state is not stored");
        let before = missed();
        let _ = decide_slowly(&table, same_home, now, 1);
        assert!(decide(before, 1).is_none(), "the set was written");
        let other = TokenBucket::new(Quota::per_hour(3));
        table.set_algorithm(other, || now, Inherit::AsIs);
        assert!(decide(missed(), 1).is_none(), "the set is to be migrated");
        let tag = make_tag(table.core.sets.key_id(hash).fingerprint, 0);
        assert!(set.lookup(tag).1.is_none());
        let _ = decide_slowly(&table, same_home, now, 1);
        let first = decide(missed(), 1);
        assert!(first.is_some_and(|first| first.remaining() == 2));
    }
}
