//! The table: finds a key, decides, and stores the result.
//!
//! # Where a key is stored
//! A key is stored in its home set, which is chosen by the high bits of its hash, or in a later set
//! of the home's probe sequence. The home's header holds the last probe in use (`probe_len`), so
//! reading one set is usually enough to see that a key is absent.
//!
//! # Deciding
//! 1. Read the key's slot, if it has one.
//! 2. Decide on a copy of its state while no set is locked. A state outside of its slot is changed while
//!    its shard is locked, so that no other thread moves the state or its slot.
//! 3. If the state has not changed, for example after a denial, write nothing. Only the first
//!    denial after an admission marks the slot in the header.
//! 4. Otherwise lock the set at the version that was read, write, and unlock. If the set was
//!    written in between, start again.
//!
//! [`Table::decide`] does this for the common case, and [`Table::transition`] for every operation and
//! every key.
//!
//! # Inserting a key
//! The same four steps with two locks: the lock of the home set, and the lock of the set with the
//! free slot. The home's lock prevents two slots for one key, because every insertion of a key of
//! this home needs the lock at the version that was read. A slot is free if it is empty or if its
//! state has expired.
//!
//! # Locks
//! In this order: the one of changes, the one of a shard, those of sets. Two sets are only tried, so no
//! thread waits for a set while it holds another.

use super::epoch::Epochs;
use super::overflow::{Counters, Overflow, Stats};
use super::probe::make_tag;
use super::sets::{Located, Sets};
use super::slot::{Set, SlotWords};
use super::spill::{KeyId, SpillStore, is_spilled};
use super::user_code::Running;
use crate::algorithm::Words;
use crate::clock::Tick;
use crate::decision::Decision;
use crate::sync::Mutex;

/// The most sets that are read to see how full a table is.
const MOST_SETS: usize = 4_096;

pub(super) struct Table<A: Words> {
    pub(super) sets: Sets,
    pub(super) overflow: Overflow,
    pub(super) counters: Counters,
    pub(super) epochs: Epochs<A>,
    pub(super) spill: SpillStore<A::State>,
    /// The state that all keys without a slot share ([`Overflow::Shared`]), and its epoch.
    pub(super) shared_state: Mutex<Option<(u64, A::State)>>,
    /// Held by the thread that changes the algorithm. The sets before this one are in the current epoch.
    pub(super) change_lock: Mutex<usize>,
    capacity: usize,
    /// How often an operation was tried on the slow path.
    #[cfg(test)]
    pub(super) attempts: std::sync::atomic::AtomicU64,
}

/// What the fast path decides on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) now: Tick,
    pub(super) cost: u64,
    /// Whether a request that is not admitted is left to the slow path.
    pub(super) admit_only: bool,
}

impl<A: Words> Table<A> {
    pub(super) fn new(mut algorithm: A, capacity: usize, overflow: Overflow, now: Tick) -> Self {
        A::rebase(&mut algorithm, now);
        let sets = Sets::for_keys(slot_words(&algorithm), capacity);
        Self {
            spill: SpillStore::new(sets.groups(), sets.slots()),
            shared_state: Mutex::new(None),
            epochs: Epochs::new(algorithm),
            change_lock: Mutex::new(sets.len),
            sets,
            overflow,
            counters: Counters::default(),
            capacity,
            #[cfg(test)]
            attempts: std::sync::atomic::AtomicU64::new(0),
        }
    }

    /// The statistics of a table that is not built yet.
    pub(super) fn stats_unused(algorithm: &A, capacity: usize) -> Stats {
        let sets = Sets::unallocated(slot_words(algorithm), capacity);
        Self::sizes(&sets, capacity, algorithm.facts().max_heap_bytes)
    }

    /// What does not depend on the keys.
    fn sizes(sets: &Sets, capacity: usize, max_heap_bytes: usize) -> Stats {
        let (groups, slots, table_bytes) = (sets.groups(), sets.slots(), sets.bytes());
        let outside = SpillStore::<A::State>::max_bytes_of(groups, slots, max_heap_bytes);
        Stats {
            capacity,
            slots,
            table_bytes,
            most_bytes: table_bytes.saturating_add(outside),
            ..Stats::default()
        }
    }

    /// The key with this hash, and where its home set is. For a caller that reads the clock next: the
    /// home set is prefetched, because reading the clock would delay a plain load of it.
    #[inline]
    pub(super) fn locate(&self, hash: u64) -> Located {
        let located = self.sets.locate(hash, A::MAX_WORDS);
        self.sets.prefetch(located);
        located
    }

    /// The fast path: decides for a key in its home set, and returns what `done` makes of the decision. It
    /// requires that the set is not being written, and that the current algorithm has packed its states
    /// and packs the new one. In all other cases it has taken nothing and runs `rest`.
    ///
    /// The result of `done` or `rest` is returned, and not a `Result` of the two: that would be told
    /// apart by a figure of the decision, which would then be computed even if no caller reads it.
    #[expect(
        clippy::inline_always,
        reason = "a call takes twice as long, and the compiler drops the figures that a caller does not read"
    )]
    #[inline(always)]
    pub(super) fn decide<T>(
        &self,
        located: Located,
        request: Request,
        done: impl FnOnce(Decision) -> T,
        rest: impl FnOnce() -> T,
    ) -> T {
        let most = A::MAX_WORDS;
        let (sets, id) = (&self.sets, located.id);
        match sets.state_words {
            words if words == 1 || most == 1 => {
                self.decide_in::<1, T>(sets.home(located, 1), id, request, done, rest)
            }
            words if words == 2 || most == 2 => {
                self.decide_in::<2, T>(sets.home(located, 2), id, request, done, rest)
            }
            words if words == 3 || most == 3 => {
                self.decide_in::<3, T>(sets.home(located, 3), id, request, done, rest)
            }
            _ => self.decide_in::<4, T>(sets.home(located, 4), id, request, done, rest),
        }
    }

    /// The fast path in a key's home set. States take at most `W` words.
    #[expect(clippy::inline_always, reason = "as for `decide`")]
    #[inline(always)]
    fn decide_in<const W: usize, T>(
        &self,
        set: Set<'_>,
        id: KeyId,
        request: Request,
        done: impl FnOnce(Decision) -> T,
        rest: impl FnOnce() -> T,
    ) -> T {
        let Request { now, cost, .. } = request;
        'missed: {
            let view = self.epochs.current();
            let tag = make_tag(id.fingerprint, 0);
            let Some((header, slot, words)) = set.try_read::<W>(tag, view.number) else {
                break 'missed;
            };
            let width = set.state_words();
            if is_spilled(words[0]) || width < A::MIN_WORDS {
                break 'missed;
            }
            let mut next = words;
            let Some(state) = next.get_mut(..width) else {
                break 'missed;
            };
            let Some(decision) = A::decide_packed(&view.algorithm, state, now, cost) else {
                break 'missed;
            };
            if request.admit_only && !decision.is_admitted() {
                break 'missed;
            }
            if next == words {
                if decision.is_denied() && !header.is_denied(slot) {
                    set.mark_denied(header, slot);
                }
            } else if let Some(mut locked) = set.try_lock(header) {
                locked.write_state(slot, &next);
            } else {
                break 'missed;
            }
            return done(decision);
        }
        rest()
    }

    /// How many keys are blocked. Only states that do not pack have blocks.
    pub(super) fn blocked(&self, now: Tick) -> usize {
        let Some(_running) = Running::enter(self.epochs.current().facts.is_user_code) else {
            return 0;
        };
        let _settled = self.settle();
        let view = self.epochs.current();
        let is_blocked = |state: &A::State| A::report(&view.algorithm, state, now).is_blocked;
        self.spill.count(is_blocked)
    }

    /// Without what is stored, if the algorithm of this table asks.
    pub(super) fn stats(&self, now: Tick) -> Stats {
        let view = self.epochs.current();
        let mut stats = Self::sizes(&self.sets, self.capacity, view.facts.max_heap_bytes);
        self.counters.fill(&mut stats);
        if let Some(_running) = Running::enter(view.facts.is_user_code) {
            let _settled = self.settle();
            let view = self.epochs.current();
            let held = |state: &A::State| A::report(&view.algorithm, state, now).heap_bytes;
            (stats.outside, stats.outside_bytes) = self.spill.usage(held);
            stats.live = self.live(now);
        }
        stats
    }

    /// The number of slots whose states have not expired.
    ///
    /// In a table of more than [`MOST_SETS`] sets, it is an estimate from as many, at equal
    /// distances. The hash chooses the set of a key, so these are as full as the others.
    fn live(&self, now: Tick) -> usize {
        let all = self.sets.len;
        let read = all.min(MOST_SETS);
        let scale = |count: usize, to: usize| {
            let scaled = count as u128 * to as u128 / read as u128;
            usize::try_from(scaled).unwrap_or(usize::MAX)
        };
        let live = (0..read).map(|number| self.live_in_set(scale(number, all), now));
        scale(live.sum(), all)
    }

    fn live_in_set(&self, at: usize, now: Tick) -> usize {
        self.read_set(at, now, |_, _| 0).count()
    }

    /// The largest part of its limit that a key has used. Reads each state.
    pub(super) fn largest_use_percent(&self, now: Tick) -> u64 {
        let Some(_running) = Running::enter(self.epochs.current().facts.is_user_code) else {
            return 0;
        };
        let _settled = self.settle();
        let view = self.epochs.current();
        let percent = |algorithm: &A, state: &A::State| algorithm.peek(state, now, 0).use_percent();
        let packed = |algorithm: &A, words: &SlotWords| {
            if is_spilled(words[0]) {
                return 0;
            }
            let words = &words[..self.sets.state_words];
            percent(algorithm, &A::unpack_from(algorithm, words))
        };
        let sets = (0..self.sets.len).filter_map(|at| self.read_set(at, now, packed).max());
        let spilled = self.spill.max(|state| percent(&view.algorithm, state));
        sets.max().unwrap_or(0).max(spilled)
    }

    /// What `read` finds in the states of a set that have not expired.
    fn read_set(
        &self,
        at: usize,
        now: Tick,
        read: impl Fn(&A, &SlotWords) -> u64,
    ) -> impl Iterator<Item = u64> {
        let set = self.sets.set(at);
        loop {
            let (view, snapshot) = (self.epochs.current(), set.snapshot());
            if self.is_current(&view, at, snapshot.header) {
                let found: Vec<u64> = (snapshot.tags.iter().zip(&snapshot.states))
                    .filter(|(tag, words)| {
                        **tag != 0 && self.forgettable_at(&view.algorithm, words) > now
                    })
                    .map(|(_, words)| read(&view.algorithm, words))
                    .collect();
                return found.into_iter();
            }
        }
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
mod tests;
