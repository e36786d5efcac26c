//! The table: which sets a key may live in, and how a decision is made and kept.
//!
//! # Where a key lives
//! Its home set, which some bits of its hash name, or else one of a few sets near it, in an order
//! that depends on the home alone. The home's header says how far to look (`reach`), so that a key
//! that is in none of them is known to be absent after one look as a rule.
//!
//! # How a decision is made
//! 1. Read the key's slot, or find that there is none.
//! 2. Decide on a copy of its state, with nothing locked: user code may panic, or come back.
//! 3. If the state has not changed, as after a denial, that was all; nothing is written.
//! 4. Else lock the set as it was read, write, unlock. If anything was written since, start again.
//!
//! # How a key comes in
//! Also in four steps, with two locks: the home's, so that a key never gets two slots (whoever adds
//! a key of this home needs the lock of the version it looked at), and that of the set that has
//! room. A slot has room if it is empty or if its state may be forgotten. Locks are only ever tried,
//! in the order of the sets, so nobody waits for one while holding another.

use super::epoch::{EpochView, Epochs};
use super::overflow::{Counters, Overflow, Stats};
use super::probe::{FINGERPRINT_BITS, ProbeSequence, probe_of_tag, tag};
use super::slot::{CacheLine, Header, Set, SetGuard, SlotState, lines, slots};
use super::spill::{
    KeyId, SpillStore, VersionedState, index, is_spilled, spill_forgettable_at, spilled_word,
};
use crate::algorithm::Algorithm;
use crate::clock::Tick;
use crate::decision::Decision;
use crate::sync::Mutex;

pub(super) struct Table<A: Algorithm> {
    pub(super) regimes: Epochs<A>,
    lines: Box<[CacheLine]>,
    pub(super) sets: usize,
    /// The words of a state.
    pub(super) words: usize,
    pub(super) probes: ProbeSequence,
    pub(super) outside: SpillStore<A::State>,
    /// The state of all keys without a slot.
    pub(super) shared: Mutex<VersionedState<A::State>>,
    pub(super) changing: Mutex<()>,
    pub(super) overflow: Overflow,
    pub(super) counters: Counters,
    capacity: usize,
}

/// What is to be done to a state. It may run several times and must depend on nothing but its
/// arguments.
pub(super) trait Transition<A: Algorithm, T> {
    fn run(&self, algorithm: &A, state: &mut A::State) -> T;
}

impl<A: Algorithm, T, F: Fn(&A, &mut A::State) -> T> Transition<A, T> for F {
    #[inline]
    fn run(&self, algorithm: &A, state: &mut A::State) -> T {
        self(algorithm, state)
    }
}

/// Decides. No closure, because those cannot be told to be inlined.
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

/// One try; the table may have changed meanwhile.
pub(super) enum TryResult<T> {
    Done(T),
    Full(Tick),
    Retry,
    /// The algorithm was exchanged.
    StaleEpoch,
}

impl<A: Algorithm> Table<A> {
    pub(super) fn new(algorithm: A, capacity: usize, overflow: Overflow, now: Tick) -> Self {
        let words = match algorithm.words() {
            words @ 1..=4 => words,
            _ => 1,
        };
        let (probes, sets) = ProbeSequence::for_keys(words, capacity);
        Self {
            lines: (0..sets * lines(words))
                .map(|_| CacheLine::default())
                .collect(),
            sets,
            words,
            outside: SpillStore::new(sets / probes.group, sets * slots(words)),
            shared: Mutex::new(VersionedState {
                state: algorithm.fresh(now),
                regime: 0,
            }),
            probes,
            regimes: Epochs::new(algorithm),
            changing: Mutex::new(()),
            overflow,
            counters: Counters::default(),
            capacity,
        }
    }

    /// The decision on a key. Where nothing unusual is in the way (it is in its home set, nobody is
    /// writing there, and the algorithm is the first one) it is all inline, and apart from the rest,
    /// so that the figures a caller does not read are not computed. Otherwise `apart` decides.
    #[expect(clippy::inline_always, reason = "half of the time")]
    #[inline(always)]
    pub(super) fn decide(
        &self,
        hash: u64,
        now: Tick,
        cost: u64,
        apart: impl FnOnce() -> Decision,
    ) -> Decision {
        match self.words {
            1 => self.decide_packed_in::<1>(hash, now, cost, apart),
            2 => self.decide_packed_in::<2>(hash, now, cost, apart),
            3 => self.decide_packed_in::<3>(hash, now, cost, apart),
            _ => self.decide_packed_in::<4>(hash, now, cost, apart),
        }
    }

    /// It answers a decision and not an option of one: whether there is any would be told by one of
    /// the figures.
    #[expect(clippy::inline_always, reason = "as for `decide`")]
    #[inline(always)]
    fn decide_packed_in<const W: usize>(
        &self,
        hash: u64,
        now: Tick,
        cost: u64,
        apart: impl FnOnce() -> Decision,
    ) -> Decision {
        let id = self.identify(hash);
        let set = self.set::<W>(id.home);
        if let (Some(algorithm), Some((header, (slot, words)))) =
            (self.regimes.first(), set.glance(id.fingerprint))
        {
            if is_spilled(&words) {
                if let Some(decision) = self.decide_spilled::<W>(id, now, cost) {
                    return decision.elsewhere();
                }
            } else {
                let mut next = words;
                if let Some(decision) = algorithm.decide_packed(&mut next, now, cost) {
                    if next == words {
                        return decision;
                    }
                    if let Some(mut locked) = set.lock(header) {
                        locked.write_state(slot, &next);
                        return decision;
                    }
                }
            }
        }
        apart()
    }

    #[inline(never)]
    fn decide_spilled<const W: usize>(&self, id: KeyId, now: Tick, cost: u64) -> Option<Decision> {
        match self.update_spilled::<W, _>(&self.regimes.view(), id, 0, &DecideStep { now, cost }) {
            TryResult::Done(decision) => Some(decision),
            _ => None,
        }
    }

    /// Changes the state of the key with this hash by `step`, which may run several times and must
    /// depend on nothing but its arguments. A key that has no slot gets one if `keep` says so and
    /// the state is not as good as fresh. The error is when there may be a slot for it.
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
        if self.words == 1 {
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
        match self.words {
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
        let id = self.identify(hash);
        loop {
            let view = self.regimes.view();
            match self.attempt::<W, T>(&view, id, now, keep, step) {
                TryResult::Done(answer) => return Ok(answer),
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
    fn attempt<const W: usize, T>(
        &self,
        view: &EpochView<'_, A>,
        id: KeyId,
        now: Tick,
        keep: bool,
        step: &impl Transition<A, T>,
    ) -> TryResult<T> {
        let set = self.set::<W>(id.home);
        let (header, found) = set.look(id.fingerprint);
        if header.generation() != view.number() & 0xFFF {
            return self.migrate_set::<W, T>(view, id.home);
        }
        match found {
            Some(found) if !is_spilled(&found.1) => {
                self.update(view, set, header, found, (id, 0), step)
            }
            Some(_) => self.update_spilled::<W, T>(view, id, 0, step),
            None => self.elsewhere::<W, T>(view, id, header, now, keep, step),
        }
    }

    /// Decides on a state that was read from its slot.
    #[expect(
        clippy::inline_always,
        reason = "so that the figures a caller does not read are not computed"
    )]
    #[inline(always)]
    fn update<const W: usize, T>(
        &self,
        view: &EpochView<'_, A>,
        set: Set<'_, W>,
        header: Header,
        (slot, words): SlotState<W>,
        (id, steps): (KeyId, usize),
        step: &impl Transition<A, T>,
    ) -> TryResult<T> {
        let algorithm = view.algorithm();
        let mut state = algorithm.unpack_from(&words);
        let answer = step.run(algorithm, &mut state);
        let mut next = [0; W];
        if !algorithm.pack_into(&state, &mut next) {
            return self.spill(view, set, header, (slot, id, steps), state, answer);
        }
        if next != words {
            let Some(mut locked) = set.lock(header) else {
                return TryResult::Retry;
            };
            locked.write_state(slot, &next);
        }
        TryResult::Done(answer)
    }

    /// Moves a state that no longer packs out of its slot.
    #[cold]
    #[inline(never)]
    fn spill<const W: usize, T>(
        &self,
        view: &EpochView<'_, A>,
        set: Set<'_, W>,
        header: Header,
        (slot, id, _): (usize, KeyId, usize),
        state: A::State,
        answer: T,
    ) -> TryResult<T> {
        let until = view.algorithm().forgettable_at(&state);
        let regime = view.number();
        let mut shard = self.outside.shard(self.group(id.home));
        let index = shard.insert(id, VersionedState { state, regime });
        let Some(mut locked) = set.lock(header) else {
            shard.remove(index, id);
            return TryResult::Retry;
        };
        locked.write_state(slot, &spilled_word(index, until));
        TryResult::Done(answer)
    }

    /// Decides on a state that stands outside. While its shard is locked nobody else moves it,
    /// nor its slot.
    #[inline(never)]
    fn update_spilled<const W: usize, T>(
        &self,
        view: &EpochView<'_, A>,
        id: KeyId,
        steps: usize,
        step: &impl Transition<A, T>,
    ) -> TryResult<T> {
        let algorithm = view.algorithm();
        let set = self.set::<W>(self.probes.near(id.home, steps));
        let mut shard = self.outside.shard(self.group(id.home));
        let (header, found) = set.look(tag(id.fingerprint, steps));
        let Some((slot, words)) = found.filter(|found| is_spilled(&found.1)) else {
            return TryResult::Retry;
        };
        if header.generation() != view.number() & 0xFFF {
            return TryResult::Retry;
        }
        let index = index(words[0]);
        let Some(kept) = shard.get_mut(index, id) else {
            return TryResult::Retry;
        };
        if kept.regime != view.number() {
            drop(shard);
            return self.migrate_set::<W, T>(view, self.probes.near(id.home, steps));
        }
        let answer = step.run(algorithm, &mut kept.state);
        let mut next = [0; W];
        let packs = algorithm.pack_into(&kept.state, &mut next);
        if !packs {
            next = spilled_word(index, algorithm.forgettable_at(&kept.state));
        }
        if next != words {
            Self::spin_lock(set).write_state(slot, &next);
        }
        if packs {
            shard.remove(index, id);
        }
        TryResult::Done(answer)
    }

    /// Locks a set of which only other slots than the caller's may change.
    fn spin_lock<const W: usize>(set: Set<'_, W>) -> SetGuard<'_, W> {
        loop {
            // No tag is all ones: the look is for the header alone.
            let (header, _) = set.look(u64::MAX);
            if let Some(locked) = set.lock(header) {
                return locked;
            }
        }
    }

    /// Goes on where the home set does not have the key.
    #[cold]
    #[inline(never)]
    fn elsewhere<const W: usize, T>(
        &self,
        view: &EpochView<'_, A>,
        id: KeyId,
        home: Header,
        now: Tick,
        keep: bool,
        step: &impl Transition<A, T>,
    ) -> TryResult<T> {
        for steps in 1..=home.reach() {
            let at = self.probes.near(id.home, steps);
            let set = self.set::<W>(at);
            let (header, found) = set.look(tag(id.fingerprint, steps));
            let Some(found) = found else { continue };
            if header.generation() != view.number() & 0xFFF {
                return self.migrate_set::<W, T>(view, at);
            }
            return if is_spilled(&found.1) {
                self.update_spilled::<W, T>(view, id, steps, step)
            } else {
                self.update(view, set, header, found, (id, steps), step)
            };
        }
        // All of it was one look only if no key of this home came in between.
        if home.reach() > 0 && !self.set::<W>(id.home).is_unchanged(home) {
            return TryResult::Retry;
        }
        self.newcomer::<W, T>(view, id, home, now, keep, step)
    }

    /// Forgets a key.
    pub(super) fn forget(&self, hash: u64) {
        match self.words {
            1 => self.remove_in::<1>(hash),
            2 => self.remove_in::<2>(hash),
            3 => self.remove_in::<3>(hash),
            _ => self.remove_in::<4>(hash),
        }
    }

    fn remove_in<const W: usize>(&self, hash: u64) {
        let id = self.identify(hash);
        // The reach of the home as it is; a key that comes in meanwhile comes after this.
        let (home, _) = self.set::<W>(id.home).look(0);
        for steps in 0..=home.reach() {
            let set = self.set::<W>(self.probes.near(id.home, steps));
            let tag = tag(id.fingerprint, steps);
            while let (header, Some((slot, words))) = set.look(tag) {
                let shard = is_spilled(&words).then(|| self.outside.shard(self.group(id.home)));
                if let Some(mut locked) = set.lock(header) {
                    locked.write_tag(slot, 0);
                    drop(locked);
                    if let Some(mut shard) = shard {
                        shard.remove(index(words[0]), id);
                    }
                }
            }
        }
    }

    /// The words of a state.
    pub(super) const fn words(&self) -> usize {
        self.words
    }

    pub(super) fn count_denied(&self) {
        Counters::count(&self.counters.denied);
    }

    pub(super) fn stats(&self) -> Stats {
        let view = self.regimes.view();
        let (outside, outside_bytes) = self
            .outside
            .size(|state| view.algorithm().held_bytes(state));
        let table_bytes = self.lines.len() * size_of::<CacheLine>();
        let most_outside = self.outside.most_bytes(view.algorithm().max_heap_bytes());
        let mut stats = Stats {
            capacity: self.capacity,
            table_bytes,
            outside,
            outside_bytes,
            most_bytes: table_bytes.saturating_add(most_outside),
            ..Stats::default()
        };
        self.counters.fill(&mut stats);
        stats
    }

    /// High bits choose the home, low ones tell the keys of one home apart.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the quotient is below the number of sets"
    )]
    #[inline]
    const fn identify(&self, hash: u64) -> KeyId {
        let fingerprint = hash & ((1 << FINGERPRINT_BITS) - 1);
        KeyId {
            home: ((hash as u128 * self.sets as u128) >> 64) as usize,
            // Zero is an empty slot.
            fingerprint: if fingerprint == 0 { 1 } else { fingerprint },
        }
    }

    /// The key in a slot of set `at`.
    pub(super) const fn key_id_at(&self, at: usize, tag: u64) -> KeyId {
        KeyId {
            home: self.probes.near(at, probe_of_tag(tag)),
            fingerprint: tag & ((1 << FINGERPRINT_BITS) - 1),
        }
    }

    #[inline]
    pub(super) fn set<const W: usize>(&self, at: usize) -> Set<'_, W> {
        Set::of(&self.lines, at)
    }

    pub(super) const fn group(&self, at: usize) -> usize {
        at / self.probes.group
    }
}

pub(super) fn forgettable_at<A: Algorithm, const W: usize>(
    algorithm: &A,
    words: &[u64; W],
) -> Tick {
    if is_spilled(words) {
        spill_forgettable_at(words[0])
    } else {
        algorithm.forgettable_at(&algorithm.unpack_from(words))
    }
}
