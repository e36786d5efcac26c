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
//!
//! Most new keys have a free slot in their home set and none of its keys outside. They are inserted by
//! [`missed`](super::missed) with one lock, at the version that the fast path has read.

use std::convert::identity;

use super::attempt::Core;
use super::epoch::Epochs;
use super::overflow::{Counters, Overflow, Stats};
use super::probe::make_tag;
use super::sets::{Located, Sets};
use super::slot::{MAX_WORDS, Miss, Set};
use super::spill::{KeyId, SharedState, SpillStore, is_spilled};
use super::walk::Walk;
use crate::algorithm::Words;
use crate::clock::Tick;
use crate::decision::Decision;
use crate::store::cold;
use crate::sync::Mutex;

pub(super) struct Table<A: Words> {
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

/// What the fast path decides on.
#[derive(Clone, Copy, Debug)]
struct Request {
    now: Tick,
    cost: u64,
    /// Whether a request that is not admitted is left to the slow path.
    admit_only: bool,
}

impl Request {
    const fn new(now: Tick, cost: u64) -> Self {
        Self {
            now,
            cost,
            admit_only: false,
        }
    }

    const fn admit_only(now: Tick, cost: u64) -> Self {
        Self {
            now,
            cost,
            admit_only: true,
        }
    }
}

impl<A: Words> Table<A> {
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
            algorithm.facts().max_heap_bytes,
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

    /// The key with this hash, and where its home set is.
    #[expect(clippy::inline_always, reason = "as for `decide`")]
    #[inline(always)]
    pub(super) fn locate(&self, hash: u64) -> Located {
        self.core.sets.locate(hash, A::MAX_WORDS)
    }

    /// [`locate`](Self::locate) for a caller that reads the clock next. The home set is prefetched,
    /// because reading the clock would delay a plain load of it.
    #[expect(clippy::inline_always, reason = "as for `decide`")]
    #[inline(always)]
    pub(super) fn locate_early(&self, hash: u64) -> Located {
        let located = self.locate(hash);
        self.core.sets.prefetch(located);
        located
    }

    /// Decides for a key, and returns what `done` makes of the decision. `rest` decides if the fast path
    /// cannot.
    #[expect(clippy::inline_always, reason = "a call takes twice as long")]
    #[inline(always)]
    pub(super) fn decide<T>(
        &self,
        located: Located,
        now: Tick,
        cost: u64,
        done: impl FnOnce(Decision) -> T,
        rest: impl FnOnce(Miss) -> T,
    ) -> T {
        let request = Request::new(now, cost);
        self.decide_fast(located, request, done, rest)
    }

    /// Takes `cost` if the fast path admits it. Returns false if it was not taken, which says
    /// nothing about the limit.
    #[expect(clippy::inline_always, reason = "as for `decide`")]
    #[inline(always)]
    pub(super) fn try_admit(&self, located: Located, now: Tick, cost: u64) -> bool {
        let request = Request::admit_only(now, cost);
        self.decide_fast(located, request, |_| true, |_| false)
    }

    /// The fast path. It requires that the key is in its home set, that the set is not being written
    /// and that the current algorithm has packed its states. In all other cases it has taken nothing
    /// and runs `miss`.
    ///
    /// The result of `done` or `miss` is returned, and not a `Result` of the two: that would be told
    /// apart by a figure of the decision, which would then be computed even if no caller reads it.
    #[expect(
        clippy::inline_always,
        reason = "lets the compiler drop the figures that a caller does not read"
    )]
    #[inline(always)]
    fn decide_fast<T>(
        &self,
        located: Located,
        request: Request,
        done: impl FnOnce(Decision) -> T,
        miss: impl FnOnce(Miss) -> T,
    ) -> T {
        let most = A::MAX_WORDS;
        let (sets, id) = (&self.core.sets, located.id);
        match sets.state_words {
            words if words == 1 || most == 1 => {
                let set = sets.home(located, 1);
                self.decide_in::<1, T>(set, id, request, done, miss)
            }
            words if words == 2 || most == 2 => {
                let set = sets.home(located, 2);
                self.decide_in::<2, T>(set, id, request, done, miss)
            }
            words if words == 3 || most == 3 => {
                let set = sets.home(located, 3);
                self.decide_in::<3, T>(set, id, request, done, miss)
            }
            _ => {
                let set = sets.home(located, 4);
                self.decide_in::<4, T>(set, id, request, done, miss)
            }
        }
    }

    /// [`decide`](Self::decide) with all figures, for callers that are not inlined.
    pub(super) fn decide_whole(
        &self,
        hash: u64,
        now: Tick,
        cost: u64,
        rest: impl FnOnce(Miss) -> Decision,
    ) -> Decision {
        let (located, request) = (self.locate(hash), Request::new(now, cost));
        // Most states take one or two words, for which a copy of the fast path per width is worth
        // its size.
        if A::MAX_WORDS <= 2 {
            return self.decide_fast(located, request, identity, rest);
        }
        let id = located.id;
        let set = self.core.sets.set(id.home);
        self.decide_in::<MAX_WORDS, _>(set, id, request, identity, rest)
    }

    /// The fast path in a key's home set. States take at most `W` words.
    #[expect(clippy::inline_always, reason = "as for `decide_fast`")]
    #[inline(always)]
    fn decide_in<const W: usize, T>(
        &self,
        set: Set<'_>,
        id: KeyId,
        request: Request,
        done: impl FnOnce(Decision) -> T,
        miss: impl FnOnce(Miss) -> T,
    ) -> T {
        let Request {
            now,
            cost,
            admit_only,
        } = request;
        let missed = 'miss: {
            let view = self.epochs.current();
            let tag = make_tag(id.fingerprint, 0);
            let (header, (slot, words)) = match set.try_read::<W>(tag, view.epoch_inlined()) {
                Ok(found) => found,
                Err(missed) => break 'miss missed,
            };
            if is_spilled(words[0]) {
                if admit_only {
                    break 'miss Miss::Slow;
                }
                match self.decide_spilled(id, (header, slot, words[0]), now, cost) {
                    Some(decision) => return done(decision.hide_from_optimizer()),
                    None => break 'miss Miss::Slow,
                }
            }
            let width = set.state_words();
            if width < A::MIN_WORDS {
                break 'miss Miss::Slow;
            }
            let mut next = words;
            let Some(state) = next.get_mut(..width) else {
                break 'miss Miss::Slow;
            };
            let decided = A::decide_packed(view.algorithm_inlined(), state, now, cost);
            let Some(decision) = decided else {
                break 'miss Miss::Slow;
            };
            if admit_only && !decision.is_admitted() {
                break 'miss Miss::Slow;
            }
            if next == words {
                if decision.is_denied() && !header.is_denied(slot) {
                    set.mark_denied(header, slot);
                }
            } else if let Some(mut locked) = set.try_lock(header) {
                locked.write_state(slot, &next);
            } else {
                break 'miss Miss::Slow;
            }
            return done(decision);
        };
        miss(missed)
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
            .count(|state| A::is_blocked(view.algorithm(), state, now))
    }

    pub(super) fn stats(&self, now: Tick) -> Stats {
        let view = self.epochs.current();
        let (spilled, spilled_bytes) = self
            .spill
            .usage(|state| A::heap_bytes(view.algorithm(), state));
        let table_bytes = self.core.sets.bytes();
        let max_spilled = SpillStore::<A::State>::max_bytes_of(
            self.core.sets.groups(),
            self.core.sets.slots(),
            view.facts().max_heap_bytes,
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
fn slot_words<A: Words>(algorithm: &A) -> usize {
    match algorithm.facts().words {
        words if (1..=A::MAX_WORDS).contains(&words) => words,
        _ => 1,
    }
}

#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod tests {
    use super::*;
    use crate::algorithm::{
        Algorithm, FixedWindow, LeakyBucket, SlidingGrid, SlidingLog, TokenBucket,
    };
    use crate::quota::Quota;
    use crate::store::local::Seeded;
    use std::{convert::identity, hash::BuildHasher};

    /// Decides on requests of one key at the same moments, with the fast path of a layer first and
    /// without it.
    fn compare<A: Words>(algorithm: &A) {
        let table = || Table::new(algorithm.clone(), 1_000, Overflow::Deny, Tick::ZERO);
        let (layer, plain) = (table(), table());
        let decide = |table: &Table<A>, now, cost| {
            table.decide(table.locate(7), now, cost, identity, |_| {
                let step = |algorithm: &A, state: &mut A::State| algorithm.decide(state, now, cost);
                let decided = table.transition(7, now, cost > 0, step);
                decided.expect("a table that is not full")
            })
        };
        let is_marked_denied = |table: &Table<A>| {
            let id = table.core.sets.key_id(7);
            let (header, found) = table.core.sets.set(id.home).lookup(id.fingerprint);
            found.is_some_and(|(slot, _)| header.is_denied(slot))
        };
        let mut quickly = 0;
        for at in 0..1_000_u64 {
            let (now, cost) = (Tick::from_nanos(at * 30_000_000), at % 4);
            let expected = decide(&plain, now, cost);
            if layer.try_admit(layer.locate(7), now, cost) {
                quickly += 1;
                assert!(expected.is_admitted(), "request {at}");
            } else {
                let slow = |_| decide(&layer, now, cost);
                let decided = layer.decide_whole(7, now, cost, slow);
                assert_eq!(decided, expected, "request {at}");
                let marked = is_marked_denied(&layer);
                assert_eq!(marked, expected.is_denied(), "request {at}");
            }
        }
        // A decision that changes nothing does not mark a key that is admitted.
        let later = Tick::from_nanos(1 << 50);
        assert!(decide(&layer, later, 1).is_admitted());
        let slow = |_| decide(&layer, later, 0);
        assert!(layer.decide_whole(7, later, 0, slow).is_admitted());
        assert!(!is_marked_denied(&layer));
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
            let done = |second: Decision| Some(second.remaining());
            let left = table.decide(table.locate(7), Tick::ZERO, 1, done, |_| None);
            assert_eq!(left, Some(998), "{cells} cells");
            widths.push(table.state_words());
        }
        widths.dedup();
        // Wider states are outside the table, and their slots have one word.
        assert_eq!(widths, [1, 2, 3, 4, 1]);
    }

    /// At a tenth of its load, a table has every key in its home set. At its capacity it has a tenth of
    /// them outside.
    #[test]
    fn keys_outside_their_home_set_need_no_slow_path() {
        const KEYS: u64 = 10_000;
        let bucket = TokenBucket::new(Quota::per_hour(4));
        let table = Table::new(bucket, 10_000, Overflow::Deny, Tick::ZERO);
        let hasher = Seeded::default();
        let hash = |key: u64| hasher.hash_one(key);
        let now = Tick::ZERO;
        let take = |algorithm: &TokenBucket, state: &mut _| algorithm.decide(state, now, 1);
        for key in 0..KEYS {
            let decided = table.transition(hash(key), now, true, take);
            assert!(decided.expect("a table that is not full").is_admitted());
        }
        let attempts = || table.attempts.load(std::sync::atomic::Ordering::Relaxed);
        let before = attempts();
        let mut outside = 0;
        for hash in (0..KEYS).map(hash) {
            let id = table.core.sets.key_id(hash);
            let (_, at_home) = table.core.sets.set(id.home).lookup(id.fingerprint);
            outside += u64::from(at_home.is_none());
            let rest = |missed| {
                let decided = table.transition_missed(missed, hash, now, true, take);
                decided.expect("it has a slot")
            };
            let decide = || table.decide_whole(hash, now, 1, rest);
            assert_eq!(decide().remaining(), 2);
            assert!(decide().is_admitted() && decide().is_admitted());
            assert!(decide().is_denied());
        }
        assert_eq!(attempts(), before);
        assert!(outside > KEYS / 20, "{outside}");
    }
}
