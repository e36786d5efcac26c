//! What the fast path misses most: keys outside their home set, and new keys.

use super::attempt::{Core, StateOps, TryResult, is_of_epoch};
use super::probe::make_tag;
use super::slot::{Header, SlotWords};
use super::spill::{KeyId, is_spilled};
#[cfg(feature = "cas")]
use super::table::Table;
#[cfg(feature = "cas")]
use crate::algorithm::Words;
use crate::clock::Tick;

#[cfg(feature = "cas")]
impl<A: Words> Table<A> {}

impl Core {
    /// Changes the state of a key that is not in its home set, whose header is `home`. Returns false if the
    /// slow path is needed; nothing was changed then.
    #[inline(never)]
    pub(super) fn attempt_missed(
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
    /// new keys, and takes two thirds of the time of [the slow path](super::insertion).
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
        let has_expired =
            |words: &SlotWords| !is_spilled(words[0]) && ops.forgettable_at(words) <= now;
        let slot = set.free_slot(home, &has_expired)?;
        if ops.create(now) <= now {
            return Some(());
        }
        let mut words = SlotWords::default();
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
    use crate::algorithm::{
        Algorithm, FixedWindow, Inherit, SlidingGrid, SlidingLog, TokenBucket, Words,
    };
    use crate::decision::Decision;
    use crate::quota::Quota;
    use crate::store::local::{hash::Seeded, overflow::Overflow, slot::Miss, table::Table};

    fn table<A: Words>(algorithm: &A) -> Table<A> {
        Table::new(algorithm.clone(), 100, Overflow::Deny, Tick::ZERO)
    }

    fn decide_slowly<A: Words>(table: &Table<A>, hash: u64, now: Tick, cost: u64) -> Decision {
        let step = |algorithm: &A, state: &mut A::State| algorithm.decide(state, now, cost);
        let decided = table.transition(hash, now, cost > 0, step);
        decided.expect("a table that is not full")
    }

    /// Decides for a key that was `missed`.
    fn decide_missed<A: Words>(
        table: &Table<A>,
        missed: Miss,
        hash: u64,
        now: Tick,
        cost: u64,
    ) -> Decision {
        let step = |algorithm: &A, state: &mut A::State| algorithm.decide(state, now, cost);
        let decided = table.transition_missed(missed, hash, now, cost > 0, step);
        decided.expect("a table that is not full")
    }

    fn decide<A: Words>(table: &Table<A>, hash: u64, now: Tick, cost: u64) -> Decision {
        table.decide(table.locate(hash), now, cost, identity, |missed| {
            decide_missed(table, missed, hash, now, cost)
        })
    }

    /// How often the slow path was needed.
    fn attempts<A: Words>(table: &Table<A>) -> u64 {
        table.attempts.load(Ordering::Relaxed)
    }

    /// What a table holds: the tags and the states of all sets.
    fn contents<A: Words>(table: &Table<A>) -> Vec<([u64; 8], [SlotWords; 8])> {
        let sets = &table.core.sets;
        let snapshots = (0..sets.len).map(|at| sets.set(at).snapshot());
        snapshots.map(|read| (read.tags, read.states)).collect()
    }

    /// Keys come and expire. Returns how often the slow path was needed, without and with the quick
    /// insertion.
    fn compare<A: Words>(algorithm: &A) -> [u64; 2] {
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
        [&plain, &quick].map(attempts)
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
        assert!(decide(&table, 5, later, 1).is_admitted());
        assert_eq!(table.stats(later).outside, 3);
    }

    #[test]
    fn what_the_quick_insertion_cannot_store_takes_the_slow_path() {
        // So large that a change of the algorithm does not migrate all of it at once.
        let bucket = TokenBucket::new(Quota::per_hour(2));
        let table = Table::new(bucket, 100_000, Overflow::Deny, Tick::ZERO);
        let (hash, same_home, now) = (1 << 63, (1 << 63) + 8, Tick::ZERO);
        let set = table.core.sets.set(table.core.sets.key_id(hash).home);
        let missed = || Miss::Absent(set.lookup(0).0);
        let is_quick = |missed, cost| {
            let before = attempts(&table);
            let decided = decide_missed(&table, missed, hash, now, cost);
            table.remove(hash);
            assert_eq!(decided.is_admitted(), cost < 3);
            attempts(&table) == before
        };
        assert!(!is_quick(missed(), 0));
        assert!(!is_quick(Miss::Slow, 1));
        let Miss::Absent(unused) = missed() else {
            unreachable!()
        };
        assert!(is_quick(missed(), 100));
        assert!(set.is_unchanged(unused), "an unused state is not stored");
        assert!(is_quick(missed(), 1));
        let before = missed();
        let _ = decide_slowly(&table, same_home, now, 1);
        assert!(!is_quick(before, 1), "the set was written");
        let other = TokenBucket::new(Quota::per_hour(2).burst(3));
        table.set_algorithm(other, || now, Inherit::AsIs);
        assert!(!is_quick(missed(), 1), "the set is to be migrated");
        assert!(is_quick(missed(), 1));
    }
}
