//! The part of the slow path that depends on the algorithm.

use std::time::Duration;

use super::attempt::{StateOps, TryResult};
use super::epoch::EpochView;
use super::probe::make_tag;
use super::sets::spin_lock;
use super::slot::{Header, Miss, SlotWords};
use super::spill::{
    KeyId, ShardGuard, VersionedState, is_spilled, spill_forgettable_at, spill_index, spilled_word,
};
use super::table::Table;
use crate::acquire::Attempt as AcquireAttempt;
use crate::algorithm::{Algorithm, Words};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::store::cold;
use crate::sync::lock;

/// An operation on a state. It may run several times and must depend on nothing but its arguments.
pub(super) type Step<'a, A> = dyn FnMut(&A, &mut <A as Algorithm>::State) -> Effect + 'a;

/// What an operation did to a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Effect {
    /// It may have changed the state.
    Changed,
    /// The same, and it was denied, which protects the key from eviction.
    Denied,
    /// It only read the state.
    Read,
}

/// The result of an operation on a state.
pub(in crate::store) trait Outcome {
    fn effect(&self) -> Effect;
}

impl Outcome for Decision {
    fn effect(&self) -> Effect {
        if self.is_denied() {
            Effect::Denied
        } else {
            Effect::Changed
        }
    }
}

/// The decision on a request that is not made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peeked(pub(super) Decision);

impl Outcome for Peeked {
    fn effect(&self) -> Effect {
        Effect::Read
    }
}

/// An attempt to acquire.
impl Outcome for AcquireAttempt {
    fn effect(&self) -> Effect {
        self.decision.effect()
    }
}

/// How much was taken.
impl Outcome for u64 {
    fn effect(&self) -> Effect {
        match *self {
            0 => Effect::Denied,
            _ => Effect::Changed,
        }
    }
}

/// A charge.
impl Outcome for Duration {
    fn effect(&self) -> Effect {
        Effect::Changed
    }
}

/// A refund.
impl Outcome for () {
    fn effect(&self) -> Effect {
        Effect::Changed
    }
}

/// The slot of a spilled state: the header of its set, its number, and its first word.
pub(super) type SpilledSlot = (Header, usize, u64);

/// How often an operation of an algorithm that is not of this crate is tried. It fails so often
/// only if it changes its own key each time it runs.
const MOST_TRIES: u32 = 1 << 12;

/// One try to run a step.
pub(super) struct Attempt<'a, 'b, A: Words> {
    table: &'a Table<A>,
    view: EpochView<'a, A>,
    step: &'a mut Step<'b, A>,
    /// A state that has no slot yet, or that no longer fits its slot.
    kept: Option<A::State>,
    shard: Option<ShardGuard<'a, A::State>>,
    /// States that were removed. They are dropped after the lock, because dropping them may run
    /// code that is not of this crate.
    removed: Option<VersionedState<A::State>>,
    denied: bool,
}

impl<'a, 'b, A: Words> Attempt<'a, 'b, A> {
    pub(super) fn new(table: &'a Table<A>, step: &'a mut Step<'b, A>) -> Self {
        Self {
            view: table.epochs.current(),
            table,
            step,
            kept: None,
            shard: None,
            removed: None,
            denied: false,
        }
    }
}

impl<A: Words> StateOps for Attempt<'_, '_, A> {
    fn epoch(&self) -> u64 {
        self.view.epoch()
    }

    fn is_user_code(&self) -> bool {
        self.view.facts().is_user_code
    }

    fn was_denied(&self) -> bool {
        self.denied
    }

    fn update(&mut self, words: &SlotWords, next: &mut SlotWords) -> Option<Tick> {
        let width = self.table.state_words();
        let algorithm = self.view.algorithm();
        let mut state = A::unpack_from(algorithm, &words[..width]);
        self.denied = (self.step)(algorithm, &mut state) == Effect::Denied;
        if A::pack_into(algorithm, &state, &mut next[..width]) {
            return None;
        }
        let until = cold::forgettable_at(algorithm, &state);
        self.kept = Some(state);
        Some(until)
    }

    fn create(&mut self, now: Tick) -> Tick {
        let algorithm = self.view.algorithm();
        let mut state = cold::fresh(algorithm, now);
        self.denied = (self.step)(algorithm, &mut state) == Effect::Denied;
        let until = cold::forgettable_at(algorithm, &state);
        self.kept = Some(state);
        until
    }

    fn inherit(&mut self, words: &SlotWords, id: KeyId) -> Option<Tick> {
        let algorithm = self.view.algorithm();
        let mut copied = None;
        let mut state = if is_spilled(words[0]) {
            let shard = self.shard.as_ref()?;
            let index = spill_index(words[0]);
            let kept = shard.get(index, id)?;
            if kept.epoch != self.view.epoch() {
                return None;
            }
            let state = kept.state.clone();
            if algorithm.facts().is_user_code {
                copied = Some((index, shard.stamp_of(index)));
                self.shard = None;
            }
            state
        } else {
            cold::unpack(algorithm, &words[..self.table.state_words()])
        };
        self.denied = (self.step)(algorithm, &mut state) == Effect::Denied;
        let until = cold::forgettable_at(algorithm, &state);
        self.kept = Some(state);
        if let Some((index, stamp)) = copied {
            let group = self.table.core.sets.group_of(id.home);
            let shard = self.shard.insert(self.table.spill.shard(group));
            shard.get(index, id)?;
            if shard.stamp_of(index) != stamp {
                return None;
            }
        }
        Some(until)
    }

    fn pack(&mut self, words: &mut SlotWords) -> bool {
        let width = self.table.state_words();
        let algorithm = self.view.algorithm();
        let pack = |state: &A::State| cold::pack(algorithm, state, &mut words[..width]);
        self.kept.as_ref().is_some_and(pack)
    }

    fn lock_shard(&mut self, group: usize) {
        self.shard = Some(self.table.spill.shard(group));
    }

    fn unlock_shard(&mut self) {
        self.shard = None;
        self.removed = None;
    }

    fn spill(&mut self, id: KeyId) -> usize {
        let epoch = self.view.epoch();
        let (shard, state) = (&mut self.shard, self.kept.take());
        let (Some(shard), Some(state)) = (shard, state) else {
            unreachable!("the state is kept and its shard locked before it is spilled");
        };
        let index = shard.insert(id, VersionedState { state, epoch });
        if self.view.facts().is_user_code {
            shard.stamp(index);
        }
        index
    }

    fn remove(&mut self, index: usize, id: KeyId) {
        if let Some(shard) = &mut self.shard {
            self.removed = shard.remove(index, id);
        }
    }

    fn forgettable_at(&self, words: &SlotWords) -> Tick {
        if is_spilled(words[0]) {
            return spill_forgettable_at(words[0]);
        }
        let algorithm = self.view.algorithm();
        cold::forgettable_at(
            algorithm,
            &cold::unpack(algorithm, &words[..self.table.state_words()]),
        )
    }

    fn is_exhausted(&self, at: usize, tag: u64, words: &SlotWords, now: Tick) -> bool {
        let algorithm = self.view.algorithm();
        let is_exhausted = |state: &A::State| cold::peek(algorithm, state, now, 1).is_denied();
        if !is_spilled(words[0]) {
            return is_exhausted(&cold::unpack(algorithm, &words[..self.table.state_words()]));
        }
        let sets = &self.table.core.sets;
        let shard = self.table.spill.shard(sets.group_of(at));
        let kept = shard.get(spill_index(words[0]), sets.key_id_at(at, tag));
        if algorithm.facts().is_user_code {
            let copy = kept.map(|kept| kept.state.clone());
            drop(shard);
            return copy.is_some_and(|state| is_exhausted(&state));
        }
        kept.is_some_and(|kept| is_exhausted(&kept.state))
    }

    fn update_spilled(&mut self, id: KeyId, probe: usize) -> TryResult {
        self.table
            .update_spilled(&self.view, (id, probe), None, self.step)
    }

    fn run_shared(&mut self, now: Tick) -> TryResult {
        self.table.run_shared(&self.view, now, self.step)
    }

    fn migrate_set(&self, at: usize) -> TryResult {
        self.table.migrate_set(&self.view, at)
    }
}

impl<A: Words> Table<A> {
    /// Runs `step` on the state of the key with this hash. The step may run several times and must
    /// depend on nothing but its arguments.
    ///
    /// If `keep` is set, a key without a slot gets one unless its new state has expired already.
    ///
    /// # Errors
    /// If the table is full. The error is the time at which a slot may become free.
    pub(super) fn transition<T: Outcome>(
        &self,
        hash: u64,
        now: Tick,
        keep: bool,
        step: impl Fn(&A, &mut A::State) -> T,
    ) -> Result<T, Tick> {
        self.transition_missed(Miss::Slow, hash, now, keep, step)
    }

    /// [`transition`](Self::transition) for a key that the fast path has `missed`.
    pub(super) fn transition_missed<T: Outcome>(
        &self,
        missed: Miss,
        hash: u64,
        now: Tick,
        keep: bool,
        step: impl Fn(&A, &mut A::State) -> T,
    ) -> Result<T, Tick> {
        let mut result = None;
        self.run(missed, hash, now, keep, &mut |algorithm, state| {
            let outcome = step(algorithm, state);
            let effect = match outcome.effect() {
                Effect::Denied if !keep => Effect::Changed,
                effect => effect,
            };
            result = Some(outcome);
            effect
        })?;
        Ok(result.expect("the step has run"))
    }

    #[inline(never)]
    fn run(
        &self,
        missed: Miss,
        hash: u64,
        now: Tick,
        keep: bool,
        step: &mut Step<'_, A>,
    ) -> Result<(), Tick> {
        let id = self.core.sets.key_id(hash);
        let mut tries = 0_u32;
        self.rebase_if_due(now);
        if let Miss::Absent(home) = missed {
            let mut attempt = Attempt::new(self, step);
            if self.core.attempt_missed(&mut attempt, id, home, now, keep) {
                return Ok(());
            }
        }
        loop {
            #[cfg(test)]
            self.attempts
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let mut attempt = Attempt::new(self, step);
            match self.core.attempt(&mut attempt, id, now, keep) {
                TryResult::Done => return Ok(()),
                TryResult::Full(free) => return Err(free),
                TryResult::Retry => {}
            }
            tries = tries.saturating_add(1);
            if tries > MOST_TRIES && attempt.view.facts().is_user_code {
                return Err(now);
            }
        }
    }

    /// Removes a key.
    pub(super) fn remove(&self, hash: u64) {
        let step: &mut Step<'_, A> = &mut |_, _| Effect::Changed;
        self.core
            .remove(&mut Attempt::new(self, step), self.core.sets.key_id(hash));
    }

    /// Decides for a key whose state is spilled, and whose slot was `found` in its home set. `None` if the
    /// slow path is needed.
    #[inline(never)]
    pub(super) fn decide_spilled(
        &self,
        id: KeyId,
        found: SpilledSlot,
        now: Tick,
        cost: u64,
    ) -> Option<Decision> {
        let mut decision = None;
        let mut step = |algorithm: &A, state: &mut A::State| {
            let decided = cold::decide(algorithm, state, now, cost);
            decision = Some(decided);
            decided.effect()
        };
        let view = self.epochs.current();
        match self.update_spilled(&view, (id, 0), Some(found), &mut step) {
            TryResult::Done => decision,
            _ => None,
        }
    }

    /// Runs `step` on a spilled state, in place. Its shard is locked, so no other thread moves the
    /// state or its slot. For an algorithm that is not of this crate, see
    /// [`update_copy`](Self::update_copy). `found` is the slot as it was read before.
    pub(super) fn update_spilled(
        &self,
        view: &EpochView<'_, A>,
        (id, probe): (KeyId, usize),
        found: Option<SpilledSlot>,
        step: &mut Step<'_, A>,
    ) -> TryResult {
        let algorithm = view.algorithm();
        if algorithm.facts().is_user_code {
            return self.update_copy(view, id, probe, step);
        }
        let sets = &self.core.sets;
        let at = sets.probes.set_index(id.home, probe);
        let set = sets.set(at);
        let mut shard = self.spill.shard(sets.group_of(id.home));
        let found = found.filter(|(header, ..)| set.is_unchanged(*header));
        let found = found.or_else(|| {
            let (header, found) = set.lookup(make_tag(id.fingerprint, probe));
            let (slot, words) = found.filter(|(_, words)| is_spilled(words[0]))?;
            Some((header, slot, words[0]))
        });
        let Some((header, slot, word)) = found else {
            return TryResult::Retry;
        };
        if !header.is_of_epoch(view.epoch()) {
            return TryResult::Retry;
        }
        let index = spill_index(word);
        let Some(kept) = shard.get_mut(index, id) else {
            return TryResult::Retry;
        };
        if kept.epoch != view.epoch() {
            drop(shard);
            return self.migrate_set(view, at);
        }
        let effect = step(algorithm, &mut kept.state);
        let denied = effect == Effect::Denied;
        let mut next = SlotWords::default();
        let packs = cold::pack(algorithm, &kept.state, &mut next[..self.state_words()]);
        if !packs {
            next = spilled_word(index, cold::forgettable_at(algorithm, &kept.state));
        }
        let is_marked = header.is_denied(slot);
        if next[0] != word || effect != Effect::Read && denied != is_marked {
            let mut locked = spin_lock(set);
            locked.write_words(slot, &next);
            locked.set_denied(slot, denied);
        }
        if packs {
            shard.remove(index, id);
        }
        TryResult::Done
    }

    /// Runs `step` on the state shared by all keys without a slot.
    pub(super) fn run_shared(
        &self,
        view: &EpochView<'_, A>,
        now: Tick,
        step: &mut Step<'_, A>,
    ) -> TryResult {
        let updated = self.update_shared(view, now, step);
        if updated == TryResult::Done {
            let counters = &self.core.counters;
            counters.count(|counters| &counters.shared, now);
        }
        updated
    }

    /// Migrates the shared state to the algorithm of `view`, and runs `step` on it.
    pub(super) fn update_shared(
        &self,
        view: &EpochView<'_, A>,
        now: Tick,
        step: &mut Step<'_, A>,
    ) -> TryResult {
        let algorithm = view.algorithm();
        let shared = lock(&self.shared_state);
        let (kept, writes) = (shared.kept.clone(), shared.writes);
        let held = (!algorithm.facts().is_user_code).then_some(shared);
        // Works on a copy, so that a panic does not change the state.
        let mut state = match kept {
            None => cold::fresh(algorithm, now),
            Some(VersionedState { mut state, epoch }) => {
                let Some(behind) = view.epoch().checked_sub(epoch) else {
                    return TryResult::Retry;
                };
                if view.migrate_state(&mut state, behind) {
                    state
                } else {
                    cold::fresh(algorithm, now)
                }
            }
        };
        if step(algorithm, &mut state) == Effect::Read {
            return TryResult::Done;
        }
        let mut shared = held.unwrap_or_else(|| lock(&self.shared_state));
        if shared.writes != writes {
            return TryResult::Retry;
        }
        shared.writes = shared.writes.wrapping_add(1);
        let epoch = view.epoch();
        let replaced = shared.kept.replace(VersionedState { state, epoch });
        drop(shared);
        drop(replaced);
        TryResult::Done
    }
}
