//! The table: finding a key, deciding, and storing the result.
//!
//! # Where a key is stored
//! In its home set, which the high bits of its hash choose, or in a later set of the home's probe
//! sequence. The home's header holds the last probe in use (`probe_len`), so one set is usually
//! enough to see that a key is absent.
//!
//! # Deciding
//! 1. Read the key's slot, or see that there is none.
//! 2. Decide on a copy of its state, with no set locked: the algorithm may be user code, and user
//!    code may panic. A spilled state is changed in place, with the lock of its shard held.
//! 3. If the state has not changed, as after a denial, write nothing.
//! 4. Otherwise lock the set at the version that was read, write, and unlock. If the set was
//!    written in between, start again.
//!
//! # Inserting a key
//! The same four steps with two locks: the home's lock, and the lock of the set with the free slot.
//! The home's lock prevents two slots for one key: every insertion of a key of this home needs it
//! at the version that was read. A slot is free if it is empty or if its state has expired. Locks
//! are only tried, in the order of the sets, so no thread waits for one while it holds another.

use super::epoch::{EpochView, Epochs};
use super::overflow::{Counters, Overflow, Stats};
use super::probe::{FINGERPRINT_BITS, ProbeSequence, make_tag, probe_of_tag};
use super::slot::{CacheLine, Header, Set, SetGuard, SlotState, lines_per_set, slots_per_set};
use super::spill::{
    KeyId, SpillStore, VersionedState, is_spilled, spill_forgettable_at, spill_index, spilled_word,
};
use crate::algorithm::{Algorithm, Packing};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::sync::Mutex;

pub(super) struct Table<A: Algorithm> {
    pub(super) epochs: Epochs<A>,
    lines: Box<[CacheLine]>,
    pub(super) set_count: usize,
    /// The words per state.
    pub(super) state_words: usize,
    pub(super) probes: ProbeSequence,
    pub(super) spill: SpillStore<A::State>,
    /// The state that all keys without a slot share ([`Overflow::Shared`]).
    pub(super) shared_state: Mutex<VersionedState<A::State>>,
    pub(super) change_lock: Mutex<()>,
    pub(super) overflow: Overflow,
    pub(super) counters: Counters,
    capacity: usize,
}

/// An operation on a state.
///
/// It may run several times and must depend on nothing but its arguments.
pub(super) trait Transition<A: Algorithm, T> {
    fn run(&self, algorithm: &A, state: &mut A::State) -> T;
}

impl<A: Algorithm, T, F: Fn(&A, &mut A::State) -> T> Transition<A, T> for F {
    #[inline]
    fn run(&self, algorithm: &A, state: &mut A::State) -> T {
        self(algorithm, state)
    }
}

/// A decision. Not a closure, because a closure cannot be marked `inline(always)`.
pub(super) struct DecideStep {
    pub(super) now: Tick,
    pub(super) cost: u64,
}

impl<A: Algorithm> Transition<A, Decision> for DecideStep {
    #[expect(
        clippy::inline_always,
        reason = "so that the figures a caller does not read are not computed"
    )]
    #[inline(always)]
    fn run(&self, algorithm: &A, state: &mut A::State) -> Decision {
        algorithm.decide(state, self.now, self.cost)
    }
}

/// The result of one try.
pub(super) enum TryResult<T> {
    Done(T),
    /// No slot is free before this moment.
    Full(Tick),
    /// The set was written in between.
    Retry,
    /// The algorithm was replaced in between.
    StaleEpoch,
}

impl<A: Algorithm> Table<A> {
    pub(super) fn new(algorithm: A, capacity: usize, overflow: Overflow, now: Tick) -> Self {
        let words = match A::Packing::word_count(&algorithm) {
            words @ 1..=4 => words,
            _ => 1,
        };
        let (probes, sets) = ProbeSequence::for_keys(words, capacity);
        Self {
            lines: (0..sets * lines_per_set(words))
                .map(|_| CacheLine::default())
                .collect(),
            set_count: sets,
            state_words: words,
            spill: SpillStore::new(sets / probes.group_sets, sets * slots_per_set(words)),
            shared_state: Mutex::new(VersionedState {
                state: algorithm.fresh(now),
                epoch: 0,
            }),
            probes,
            epochs: Epochs::new(algorithm),
            change_lock: Mutex::new(()),
            overflow,
            counters: Counters::default(),
            capacity,
        }
    }

    /// Decides for a key.
    ///
    /// The fast path is inlined: the key is in its home set, the set is not being written, and the
    /// algorithm is the initial one. Inlined, the compiler drops the figures that a caller does not
    /// read. Everything else goes to `slow_path`.
    #[expect(clippy::inline_always, reason = "half of the time")]
    #[inline(always)]
    pub(super) fn decide(
        &self,
        hash: u64,
        now: Tick,
        cost: u64,
        slow_path: impl FnOnce() -> Decision,
    ) -> Decision {
        match self.state_words {
            1 => self.decide_packed_in::<1>(hash, now, cost, slow_path),
            2 => self.decide_packed_in::<2>(hash, now, cost, slow_path),
            3 => self.decide_packed_in::<3>(hash, now, cost, slow_path),
            _ => self.decide_packed_in::<4>(hash, now, cost, slow_path),
        }
    }

    /// Returns a decision, not an option: the niche of an option would lie in one of the figures,
    /// which would then always be computed.
    #[expect(clippy::inline_always, reason = "as for `decide`")]
    #[inline(always)]
    fn decide_packed_in<const W: usize>(
        &self,
        hash: u64,
        now: Tick,
        cost: u64,
        slow_path: impl FnOnce() -> Decision,
    ) -> Decision {
        let id = self.key_id(hash);
        let set = self.set::<W>(id.home);
        if let (Some(algorithm), Some((header, (slot, words)))) =
            (self.epochs.initial(), set.try_read(id.fingerprint))
        {
            if is_spilled(&words) {
                if let Some(decision) = self.decide_spilled::<W>(id, now, cost) {
                    return decision.hide_from_optimizer();
                }
            } else {
                let mut next = words;
                if let Some(decision) = A::Packing::decide_packed(algorithm, &mut next, now, cost) {
                    if next == words {
                        return decision;
                    }
                    if let Some(mut locked) = set.try_lock(header) {
                        locked.write_state(slot, &next);
                        return decision;
                    }
                }
            }
        }
        slow_path()
    }

    #[inline(never)]
    fn decide_spilled<const W: usize>(&self, id: KeyId, now: Tick, cost: u64) -> Option<Decision> {
        match self.update_spilled::<W, _>(&self.epochs.current(), id, 0, &DecideStep { now, cost })
        {
            TryResult::Done(decision) => Some(decision),
            _ => None,
        }
    }

    /// Runs `step` on the state of the key with this hash.
    ///
    /// A key without a slot gets one if `keep` is set and the new state has not expired.
    ///
    /// # Errors
    /// When a slot may become free, if the table is full.
    #[expect(
        clippy::inline_always,
        reason = "so that the figures a caller does not read are not computed"
    )]
    #[inline(always)]
    pub(super) fn transition<T>(
        &self,
        hash: u64,
        now: Tick,
        keep: bool,
        step: &impl Transition<A, T>,
    ) -> Result<T, Tick> {
        if self.state_words == 1 {
            self.transition_in::<1, T>(hash, now, keep, step)
        } else {
            self.transition_wide(hash, now, keep, step)
        }
    }

    #[inline(never)]
    fn transition_wide<T>(
        &self,
        hash: u64,
        now: Tick,
        keep: bool,
        step: &impl Transition<A, T>,
    ) -> Result<T, Tick> {
        match self.state_words {
            2 => self.transition_in::<2, T>(hash, now, keep, step),
            3 => self.transition_in::<3, T>(hash, now, keep, step),
            _ => self.transition_in::<4, T>(hash, now, keep, step),
        }
    }

    #[expect(
        clippy::inline_always,
        reason = "so that the figures a caller does not read are not computed"
    )]
    #[inline(always)]
    fn transition_in<const W: usize, T>(
        &self,
        hash: u64,
        now: Tick,
        keep: bool,
        step: &impl Transition<A, T>,
    ) -> Result<T, Tick> {
        let id = self.key_id(hash);
        loop {
            let view = self.epochs.current();
            match self.try_transition::<W, T>(&view, id, now, keep, step) {
                TryResult::Done(result) => return Ok(result),
                TryResult::Full(free) => return Err(free),
                TryResult::Retry | TryResult::StaleEpoch => {}
            }
        }
    }

    #[expect(
        clippy::inline_always,
        reason = "so that the figures a caller does not read are not computed"
    )]
    #[inline(always)]
    fn try_transition<const W: usize, T>(
        &self,
        view: &EpochView<'_, A>,
        id: KeyId,
        now: Tick,
        keep: bool,
        step: &impl Transition<A, T>,
    ) -> TryResult<T> {
        let set = self.set::<W>(id.home);
        let (header, found) = set.lookup(id.fingerprint);
        if header.epoch() != view.epoch() & 0xFFF {
            return self.migrate_set::<W, T>(view, id.home);
        }
        match found {
            Some(found) if !is_spilled(&found.1) => {
                self.update_packed(view, set, header, found, (id, 0), step)
            }
            Some(_) => self.update_spilled::<W, T>(view, id, 0, step),
            None => self.probe_or_insert::<W, T>(view, id, header, now, keep, step),
        }
    }

    /// Runs `step` on a state that was read from its slot.
    #[expect(
        clippy::inline_always,
        reason = "so that the figures a caller does not read are not computed"
    )]
    #[inline(always)]
    fn update_packed<const W: usize, T>(
        &self,
        view: &EpochView<'_, A>,
        set: Set<'_, W>,
        header: Header,
        (slot, words): SlotState<W>,
        (id, probe): (KeyId, usize),
        step: &impl Transition<A, T>,
    ) -> TryResult<T> {
        let algorithm = view.algorithm();
        let mut state = A::Packing::unpack_from(algorithm, &words);
        let result = step.run(algorithm, &mut state);
        let mut next = [0; W];
        if !A::Packing::pack_into(algorithm, &state, &mut next) {
            return self.spill_state(view, set, header, (slot, id, probe), state, result);
        }
        if next != words {
            let Some(mut locked) = set.try_lock(header) else {
                return TryResult::Retry;
            };
            locked.write_state(slot, &next);
        }
        TryResult::Done(result)
    }

    /// Moves a state that no longer fits its slot to the spill store.
    #[cold]
    #[inline(never)]
    fn spill_state<const W: usize, T>(
        &self,
        view: &EpochView<'_, A>,
        set: Set<'_, W>,
        header: Header,
        (slot, id, _): (usize, KeyId, usize),
        state: A::State,
        result: T,
    ) -> TryResult<T> {
        let until = view.algorithm().forgettable_at(&state);
        let epoch = view.epoch();
        let mut shard = self.spill.shard(self.group_of(id.home));
        let index = shard.insert(id, VersionedState { state, epoch });
        let Some(mut locked) = set.try_lock(header) else {
            shard.remove(index, id);
            return TryResult::Retry;
        };
        locked.write_state(slot, &spilled_word(index, until));
        TryResult::Done(result)
    }

    /// Runs `step` on a spilled state, with its shard locked: no other thread moves the state or its
    /// slot meanwhile.
    #[inline(never)]
    fn update_spilled<const W: usize, T>(
        &self,
        view: &EpochView<'_, A>,
        id: KeyId,
        probe: usize,
        step: &impl Transition<A, T>,
    ) -> TryResult<T> {
        let algorithm = view.algorithm();
        let set = self.set::<W>(self.probes.set_index(id.home, probe));
        let mut shard = self.spill.shard(self.group_of(id.home));
        let (header, found) = set.lookup(make_tag(id.fingerprint, probe));
        let Some((slot, words)) = found.filter(|found| is_spilled(&found.1)) else {
            return TryResult::Retry;
        };
        if header.epoch() != view.epoch() & 0xFFF {
            return TryResult::Retry;
        }
        let index = spill_index(words[0]);
        let Some(kept) = shard.get_mut(index, id) else {
            return TryResult::Retry;
        };
        if kept.epoch != view.epoch() {
            drop(shard);
            return self.migrate_set::<W, T>(view, self.probes.set_index(id.home, probe));
        }
        let result = step.run(algorithm, &mut kept.state);
        let mut next = [0; W];
        let packs = A::Packing::pack_into(algorithm, &kept.state, &mut next);
        if !packs {
            next = spilled_word(index, algorithm.forgettable_at(&kept.state));
        }
        if next != words {
            Self::spin_lock(set).write_state(slot, &next);
        }
        if packs {
            shard.remove(index, id);
        }
        TryResult::Done(result)
    }

    /// Locks a set of which other threads change only other slots than the caller's.
    fn spin_lock<const W: usize>(set: Set<'_, W>) -> SetGuard<'_, W> {
        loop {
            // Only for the header: no tag is all ones.
            let (header, _) = set.lookup(u64::MAX);
            if let Some(locked) = set.try_lock(header) {
                return locked;
            }
        }
    }

    /// Continues after the home set does not have the key.
    #[cold]
    #[inline(never)]
    fn probe_or_insert<const W: usize, T>(
        &self,
        view: &EpochView<'_, A>,
        id: KeyId,
        home: Header,
        now: Tick,
        keep: bool,
        step: &impl Transition<A, T>,
    ) -> TryResult<T> {
        for probe in 1..=home.probe_len() {
            let at = self.probes.set_index(id.home, probe);
            let set = self.set::<W>(at);
            let (header, found) = set.lookup(make_tag(id.fingerprint, probe));
            let Some(found) = found else { continue };
            if header.epoch() != view.epoch() & 0xFFF {
                return self.migrate_set::<W, T>(view, at);
            }
            return if is_spilled(&found.1) {
                self.update_spilled::<W, T>(view, id, probe, step)
            } else {
                self.update_packed(view, set, header, found, (id, probe), step)
            };
        }
        // The key is absent only if no key of this home was inserted during the search.
        if home.probe_len() > 0 && !self.set::<W>(id.home).is_unchanged(home) {
            return TryResult::Retry;
        }
        self.insert::<W, T>(view, id, home, now, keep, step)
    }

    /// Removes a key.
    pub(super) fn remove(&self, hash: u64) {
        match self.state_words {
            1 => self.remove_in::<1>(hash),
            2 => self.remove_in::<2>(hash),
            3 => self.remove_in::<3>(hash),
            _ => self.remove_in::<4>(hash),
        }
    }

    fn remove_in<const W: usize>(&self, hash: u64) {
        let id = self.key_id(hash);
        // A key that is inserted from now on counts as inserted after the removal.
        let (home, _) = self.set::<W>(id.home).lookup(0);
        for probe in 0..=home.probe_len() {
            let set = self.set::<W>(self.probes.set_index(id.home, probe));
            let tag = make_tag(id.fingerprint, probe);
            while let (header, Some((slot, words))) = set.lookup(tag) {
                let shard = is_spilled(&words).then(|| self.spill.shard(self.group_of(id.home)));
                if let Some(mut locked) = set.try_lock(header) {
                    locked.write_tag(slot, 0);
                    drop(locked);
                    if let Some(mut shard) = shard {
                        shard.remove(spill_index(words[0]), id);
                    }
                }
            }
        }
    }

    /// The words per state.
    pub(super) const fn state_words(&self) -> usize {
        self.state_words
    }

    pub(super) fn count_denied(&self) {
        Counters::count(&self.counters.denied);
    }

    pub(super) fn stats(&self) -> Stats {
        let view = self.epochs.current();
        let (spilled, spilled_bytes) = self
            .spill
            .usage(|state| A::Packing::heap_bytes(view.algorithm(), state));
        let table_bytes = self.lines.len() * size_of::<CacheLine>();
        let max_spilled = self
            .spill
            .max_bytes(A::Packing::max_heap_bytes(view.algorithm()));
        let mut stats = Stats {
            capacity: self.capacity,
            table_bytes,
            outside: spilled,
            outside_bytes: spilled_bytes,
            most_bytes: table_bytes.saturating_add(max_spilled),
            ..Stats::default()
        };
        self.counters.fill(&mut stats);
        stats
    }

    /// The high bits choose the home set, the low bits are the fingerprint.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the product's high half is below the number of sets"
    )]
    #[inline]
    const fn key_id(&self, hash: u64) -> KeyId {
        let fingerprint = hash & ((1 << FINGERPRINT_BITS) - 1);
        KeyId {
            home: ((hash as u128 * self.set_count as u128) >> 64) as usize,
            // Zero is an empty slot.
            fingerprint: if fingerprint == 0 { 1 } else { fingerprint },
        }
    }

    /// The key with this tag in set `at`.
    pub(super) const fn key_id_at(&self, at: usize, tag: u64) -> KeyId {
        KeyId {
            home: self.probes.set_index(at, probe_of_tag(tag)),
            fingerprint: tag & ((1 << FINGERPRINT_BITS) - 1),
        }
    }

    #[inline]
    pub(super) fn set<const W: usize>(&self, at: usize) -> Set<'_, W> {
        Set::at_index(&self.lines, at)
    }

    pub(super) const fn group_of(&self, at: usize) -> usize {
        at / self.probes.group_sets
    }
}

pub(super) fn slot_forgettable_at<A: Algorithm, const W: usize>(
    algorithm: &A,
    words: &[u64; W],
) -> Tick {
    if is_spilled(words) {
        spill_forgettable_at(words[0])
    } else {
        algorithm.forgettable_at(&A::Packing::unpack_from(algorithm, words))
    }
}
