//! The table: finds a key, decides, and stores the result.
//!
//! # Where a key is stored
//! A key is stored in its home set, which is chosen by the high bits of its hash, or in a later set
//! of the home's probe sequence. The home's header holds the last probe in use (`probe_len`), so
//! reading one set is usually enough to see that a key is absent.
//!
//! # Deciding
//! 1. Read the key's slot, if it has one.
//! 2. Decide on a copy of its state while no set is locked, because the algorithm may be user code,
//!    which may panic or use this table. A spilled state of an algorithm of this crate is changed
//!    in place while its shard is locked.
//! 3. If the state has not changed, for example after a denial, write nothing. Only the first
//!    denial after an admission marks the slot in the header.
//! 4. Otherwise lock the set at the version that was read, write, and unlock. If the set was
//!    written in between, start again.
//!
//! # Inserting a key
//! The same four steps with two locks: the lock of the home set, and the lock of the set with the
//! free slot. The home's lock prevents two slots for one key, because every insertion of a key of
//! this home needs the lock at the version that was read. A slot is free if it is empty or if its
//! state has expired. Both locks are only tried, in the order of the sets, so no thread waits for a
//! lock while it holds another.

use super::attempt::Core;
use super::epoch::Epochs;
use super::overflow::{Counters, Overflow, Stats};
use super::sets::Sets;
use super::slot::{MAX_WORDS, Set};
use super::spill::{KeyId, SharedState, SpillStore, is_spilled};
use super::walk::Walk;
use crate::algorithm::{Algorithm, Packing};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::store::cold;
use crate::sync::Mutex;

pub(super) struct Table<A: Algorithm> {
    pub(super) core: Core,
    pub(super) epochs: Epochs<A>,
    pub(super) spill: SpillStore<A::State>,
    /// The state that all keys without a slot share ([`Overflow::Shared`]).
    pub(super) shared_state: Mutex<SharedState<A::State>>,
    /// Held by the thread that changes the algorithm.
    pub(super) change_lock: Mutex<Walk>,
    capacity: usize,
    /// How often an operation was tried on the slow path.
    #[cfg(test)]
    pub(super) attempts: std::sync::atomic::AtomicU64,
}

impl<A: Algorithm> Table<A> {
    pub(super) fn new(mut algorithm: A, capacity: usize, overflow: Overflow, now: Tick) -> Self {
        cold::rebase(&mut algorithm, now);
        let sets = Sets::for_keys(slot_words(&algorithm), capacity);
        Self {
            spill: SpillStore::new(sets.groups(), sets.slots()),
            shared_state: Mutex::new(SharedState::default()),
            epochs: Epochs::new(algorithm),
            change_lock: Mutex::new(Walk::default()),
            core: Core {
                sets,
                overflow,
                counters: Counters::default(),
            },
            capacity,
            #[cfg(test)]
            attempts: std::sync::atomic::AtomicU64::new(0),
        }
    }

    /// The statistics of a table that is not built yet.
    pub(super) fn stats_unused(algorithm: &A, capacity: usize) -> Stats {
        let sets = Sets::unallocated(slot_words(algorithm), capacity);
        let most_spilled = SpillStore::<A::State>::max_bytes_of(
            sets.groups(),
            sets.slots(),
            A::Packing::max_heap_bytes(algorithm),
        );
        let table_bytes = sets.bytes();
        Stats {
            capacity,
            slots: sets.slots(),
            table_bytes,
            most_bytes: table_bytes.saturating_add(most_spilled),
            ..Stats::default()
        }
    }

    /// Decides for a key. `slow_path` decides if the fast path cannot.
    #[expect(clippy::inline_always, reason = "a call takes twice as long")]
    #[inline(always)]
    pub(super) fn decide(
        &self,
        hash: u64,
        now: Tick,
        cost: u64,
        slow_path: impl FnOnce() -> Decision,
    ) -> Decision {
        self.decide_fast::<false>(hash, now, cost)
            .unwrap_or_else(slow_path)
    }

    /// Takes `cost` if the fast path admits it. Returns false if it was not taken, which says
    /// nothing about the limit.
    #[expect(clippy::inline_always, reason = "as for `decide`")]
    #[inline(always)]
    pub(super) fn try_admit(&self, hash: u64, now: Tick, cost: u64) -> bool {
        self.decide_fast::<true>(hash, now, cost).is_some()
    }

    /// The fast path. It requires that the key is in its home set, that the set is not being written
    /// and that the current algorithm has packed its states. In all other cases it returns `None`
    /// and has taken nothing.
    ///
    /// With `ADMIT_ONLY` it also returns `None` for a request that is not admitted.
    #[expect(
        clippy::inline_always,
        reason = "lets the compiler drop the figures that a caller does not read"
    )]
    #[inline(always)]
    fn decide_fast<const ADMIT_ONLY: bool>(
        &self,
        hash: u64,
        now: Tick,
        cost: u64,
    ) -> Option<Decision> {
        let most = A::Packing::MAX_WORDS;
        let (sets, id) = (&self.core.sets, self.core.sets.key_id(hash));
        match sets.state_words {
            words if words == 1 || most == 1 => {
                self.decide_in::<1, ADMIT_ONLY>(sets.set_of_words::<1>(id.home), id, now, cost)
            }
            words if words == 2 || most == 2 => {
                self.decide_in::<2, ADMIT_ONLY>(sets.set_of_words::<2>(id.home), id, now, cost)
            }
            words if words == 3 || most == 3 => {
                self.decide_in::<3, ADMIT_ONLY>(sets.set_of_words::<3>(id.home), id, now, cost)
            }
            _ => self.decide_in::<4, ADMIT_ONLY>(sets.set_of_words::<4>(id.home), id, now, cost),
        }
    }

    /// [`decide`](Self::decide), with all figures and one copy of the fast path for all widths: for
    /// callers that are not inlined.
    pub(super) fn decide_whole(
        &self,
        hash: u64,
        now: Tick,
        cost: u64,
        slow_path: impl FnOnce() -> Decision,
    ) -> Decision {
        let id = self.core.sets.key_id(hash);
        let set = self.core.sets.set(id.home);
        // Most states take one or two words. The copy for these is shorter.
        let decided = if A::Packing::MAX_WORDS <= 2 {
            self.decide_in::<2, false>(set, id, now, cost)
        } else {
            self.decide_in::<MAX_WORDS, false>(set, id, now, cost)
        };
        decided.unwrap_or_else(slow_path)
    }

    /// [`decide`](Self::decide) on the fast path alone. `None` if it cannot decide; it has taken nothing
    /// then.
    #[cfg(feature = "cas")]
    #[expect(clippy::inline_always, reason = "it has one caller per table")]
    #[inline(always)]
    pub(super) fn try_decide(&self, hash: u64, now: Tick, cost: u64) -> Option<Decision> {
        self.decide_fast::<false>(hash, now, cost)
    }

    /// The fast path in the home set of a key. States take at most `W` words.
    #[expect(clippy::inline_always, reason = "as for `decide_fast`")]
    #[inline(always)]
    fn decide_in<const W: usize, const ADMIT_ONLY: bool>(
        &self,
        set: Set<'_>,
        id: KeyId,
        now: Tick,
        cost: u64,
    ) -> Option<Decision> {
        let view = self.epochs.current();
        let (header, (slot, words)) = set.try_read::<W>(id.fingerprint, view.epoch())?;
        if is_spilled(words[0]) {
            if ADMIT_ONLY {
                return None;
            }
            let decision = self.decide_spilled(&view, id, now, cost)?;
            return Some(decision.hide_from_optimizer());
        }
        let width = set.state_words();
        if width < A::Packing::MIN_WORDS {
            return None;
        }
        let mut next = words;
        let state = next.get_mut(..width)?;
        let decision = A::Packing::decide_packed(view.algorithm(), state, now, cost)?;
        if ADMIT_ONLY && !decision.is_admitted() {
            return None;
        }
        if next == words {
            if decision.is_denied() && !header.is_denied(slot) {
                set.mark_denied(header, slot);
            }
        } else {
            set.try_lock(header)?.write_state(slot, &next);
        }
        Some(decision)
    }

    /// The words per state.
    pub(super) const fn state_words(&self) -> usize {
        self.core.sets.state_words
    }

    pub(super) fn count_denied(&self, now: Tick) {
        let counters = &self.core.counters;
        counters.count(|counters| &counters.denied, now);
    }

    pub(super) fn count_lost_charge(&self, now: Tick) {
        let counters = &self.core.counters;
        counters.count(|counters| &counters.lost_charges, now);
    }

    /// How many keys are blocked. Only states that do not pack have blocks.
    pub(super) fn blocked(&self, now: Tick) -> usize {
        let view = self.epochs.current();
        self.spill
            .count(|state| A::Packing::is_blocked(view.algorithm(), state, now))
    }

    pub(super) fn stats(&self, now: Tick) -> Stats {
        let view = self.epochs.current();
        let (spilled, spilled_bytes) = self
            .spill
            .usage(|state| A::Packing::heap_bytes(view.algorithm(), state));
        let table_bytes = self.core.sets.bytes();
        let max_spilled = SpillStore::<A::State>::max_bytes_of(
            self.core.sets.groups(),
            self.core.sets.slots(),
            A::Packing::max_heap_bytes(view.algorithm()),
        );
        let mut stats = Stats {
            capacity: self.capacity,
            slots: self.core.sets.slots(),
            live: self.live(now),
            table_bytes,
            outside: spilled,
            outside_bytes: spilled_bytes,
            most_bytes: table_bytes.saturating_add(max_spilled),
            ..Stats::default()
        };
        self.core.counters.fill(&mut stats);
        stats
    }
}

/// The words per slot of a table. A state that takes more is stored outside its slot.
fn slot_words<A: Algorithm>(algorithm: &A) -> usize {
    match A::Packing::word_count(algorithm) {
        words if (1..=A::Packing::MAX_WORDS).contains(&words) => words,
        _ => 1,
    }
}

#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod tests {
    use super::*;
    use crate::algorithm::{FixedWindow, LeakyBucket, SlidingGrid, SlidingLog, TokenBucket};
    use crate::quota::Quota;

    /// Decides on requests of one key at the same moments, with the fast path of a layer first and
    /// without it.
    fn compare<A: Algorithm>(algorithm: &A) {
        let table = || Table::new(algorithm.clone(), 1_000, Overflow::Deny, Tick::ZERO);
        let (layer, plain) = (table(), table());
        let decide = |table: &Table<A>, now, cost| {
            table.decide(7, now, cost, || {
                let step = |algorithm: &A, state: &mut A::State| algorithm.decide(state, now, cost);
                let decided = table.transition(7, now, cost > 0, step);
                decided.expect("a table that is not full")
            })
        };
        let mut quickly = 0;
        for at in 0..1_000_u64 {
            let (now, cost) = (Tick::from_nanos(at * 30_000_000), at % 4);
            let expected = decide(&plain, now, cost);
            if layer.try_admit(7, now, cost) {
                quickly += 1;
                assert!(expected.is_admitted(), "request {at}");
            } else {
                assert_eq!(decide(&layer, now, cost), expected, "request {at}");
            }
        }
        assert!(
            layer.stats(Tick::ZERO).outside > 0 || quickly > 100,
            "{quickly}"
        );
    }

    #[test]
    fn the_fast_path_of_a_layer_admits_what_is_admitted_and_else_takes_nothing() {
        compare(&FixedWindow::new(Quota::per_second(10)));
        compare(&TokenBucket::new(Quota::per_second(10)));
        // Waits take the cost as well.
        compare(&LeakyBucket::new(Quota::per_second(10)).queue(5));
        compare(&(
            FixedWindow::new(Quota::per_minute(100)),
            FixedWindow::new(Quota::per_second(10)),
        ));
        compare(&SlidingLog::new(Quota::per_second(10)));
    }

    #[test]
    fn the_fast_path_decides_for_states_of_every_width() {
        let mut widths = Vec::new();
        for cells in 1..=SlidingGrid::MAX_CELLS {
            let grid = SlidingGrid::new(Quota::per_hour(1_000)).cells(cells);
            let table = Table::new(grid, 100, Overflow::Deny, Tick::ZERO);
            let step = |grid: &SlidingGrid, state: &mut _| grid.decide(state, Tick::ZERO, 1);
            let first = table.transition(7, Tick::ZERO, true, step);
            assert!(first.is_ok_and(|first| first.is_admitted()));
            let second = table.decide_fast::<false>(7, Tick::ZERO, 1);
            let left = second.map(|second| second.remaining());
            assert_eq!(left, Some(998), "{cells} cells");
            widths.push(table.state_words());
        }
        widths.dedup();
        // Wider states are outside the table, and their slots have one word.
        assert_eq!(widths, [1, 2, 3, 4, 1]);
    }
}
