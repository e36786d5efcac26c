//! The slow path: any operation on the state of any key.

use std::time::Duration;

use super::epoch::Epoch;
use super::probe::make_tag;
use super::slot::{Header, SlotWords};
use super::spill::{KeyId, is_spilled, spill_forgettable_at, spill_index, spilled_word};
use super::table::Table;
use super::user_code::Running;
use crate::acquire::Attempt;
use crate::algorithm::{Algorithm, Words};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::sync::lock;

/// What runs on a state. It may run several times and must depend on nothing but its arguments.
pub(super) type Step<'a, A> = dyn FnMut(&A, &mut <A as Algorithm>::State) -> Effect + 'a;

/// What an operation did to a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It may have changed the state.
    Changed,
    /// The same, and it was denied, which protects the key from eviction.
    Denied,
    /// It only read the state.
    Read,
}

impl Effect {
    const fn denied_if(is_denied: bool) -> Self {
        if is_denied {
            Self::Denied
        } else {
            Self::Changed
        }
    }
}

/// The result of an operation on a state.
pub(super) trait Outcome {
    fn effect(&self) -> Effect {
        Effect::Changed
    }
}

impl Outcome for Decision {
    fn effect(&self) -> Effect {
        Effect::denied_if(self.is_denied())
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

impl Outcome for Attempt {
    fn effect(&self) -> Effect {
        self.decision.effect()
    }
}

/// How much was taken.
impl Outcome for u64 {
    fn effect(&self) -> Effect {
        Effect::denied_if(*self == 0)
    }
}

/// A charge.
impl Outcome for Duration {}

/// A refund.
impl Outcome for () {}

/// One try of an operation on a key.
pub(super) struct Operation<'a, 'b, A: Words> {
    pub(super) view: &'a Epoch<A>,
    pub(super) id: KeyId,
    pub(super) now: Tick,
    /// Whether a key without a slot gets one, unless its new state has expired already.
    pub(super) keep: bool,
    pub(super) step: &'a mut Step<'b, A>,
}

/// The result of one try: done, or the time before which no slot becomes free. `None` if another thread
/// has written the set or replaced the algorithm in between.
pub(super) type Tried = Option<Result<(), Tick>>;

pub(super) const DONE: Tried = Some(Ok(()));

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
        let mut result = None;
        self.run(hash, now, keep, &mut |algorithm, state| {
            let outcome = step(algorithm, state);
            let effect = match outcome.effect() {
                Effect::Denied if !keep => Effect::Changed,
                effect => effect,
            };
            result = Some(outcome);
            effect
        })?;
        result.ok_or(now)
    }

    fn run(&self, hash: u64, now: Tick, keep: bool, step: &mut Step<'_, A>) -> Result<(), Tick> {
        let facts = self.epochs.current().facts;
        let _running = Running::enter(facts.is_user_code).ok_or(now)?;
        if facts.rebase_at <= now {
            self.rebase(now);
        }
        loop {
            #[cfg(test)]
            self.attempts
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let view = self.epochs.current();
            let tried = self.attempt(&mut Operation {
                view: &view,
                id: self.sets.key_id(hash),
                now,
                keep,
                step: &mut *step,
            });
            if let Some(done) = tried {
                return done;
            }
        }
    }

    fn attempt(&self, operation: &mut Operation<'_, '_, A>) -> Tried {
        let id = operation.id;
        let lookup = |probe| {
            let at = self.sets.probes.set_index(id.home, probe);
            self.sets.set(at).lookup(make_tag(id.fingerprint, probe))
        };
        let (home, found) = lookup(0);
        if let Some(found) = found {
            return self.update(operation, 0, home, found);
        }
        for probe in 1..=home.probe_len() {
            if let (header, Some(found)) = lookup(probe) {
                return self.update(operation, probe, header, found);
            }
        }
        self.insert(operation, home)
    }

    /// Changes the state that was read from `slot` of the set at `probe`.
    fn update(
        &self,
        operation: &mut Operation<'_, '_, A>,
        probe: usize,
        header: Header,
        (slot, words): (usize, SlotWords),
    ) -> Tried {
        let (view, id) = (operation.view, operation.id);
        let at = self.sets.probes.set_index(id.home, probe);
        if !self.is_current(view, at, header) {
            return None;
        }
        if is_spilled(words[0]) {
            return self.update_spilled(operation, probe);
        }
        let set = self.sets.set(at);
        let width = self.sets.state_words;
        let mut state = A::unpack_from(&view.algorithm, &words[..width]);
        let is_denied = (operation.step)(&view.algorithm, &mut state) == Effect::Denied;
        let mut next = SlotWords::default();
        if !A::pack_into(&view.algorithm, &state, &mut next[..width]) {
            let until = view.algorithm.forgettable_at(&state);
            let mut shard = self.spill.shard(self.sets.group_of(at));
            let index = shard.insert(id, state);
            let Some(mut locked) = set.try_lock(header) else {
                shard.remove(index, id);
                return None;
            };
            locked.write_state(slot, &spilled_word(index, until));
        } else if next != words {
            let mut locked = set.try_lock(header)?;
            locked.write_state(slot, &next);
            locked.set_denied(slot, is_denied);
        } else if is_denied && !header.is_denied(slot) {
            set.mark_denied(header, slot);
        }
        DONE
    }

    /// Changes a state outside of its slot while its shard is locked: an algorithm of a user changes a
    /// copy, so that a panic changes nothing.
    fn update_spilled(&self, operation: &mut Operation<'_, '_, A>, probe: usize) -> Tried {
        let (view, id) = (operation.view, operation.id);
        let at = self.sets.probes.set_index(id.home, probe);
        let set = self.sets.set(at);
        let mut shard = self.spill.shard(self.sets.group_of(at));
        // Now that no other thread can move it.
        let (header, found) = set.lookup(make_tag(id.fingerprint, probe));
        let (slot, words) = found.filter(|(_, words)| is_spilled(words[0]))?;
        if !header.is_of_epoch(view.number) {
            return None;
        }
        let index = spill_index(words[0]);
        let kept = shard.get_mut(index, id)?;
        let mut copy = view.facts.is_user_code.then(|| kept.clone());
        let state = copy.as_mut().unwrap_or(&mut *kept);
        let effect = (operation.step)(&view.algorithm, state);
        if effect == Effect::Read {
            return DONE;
        }
        let is_denied = effect == Effect::Denied;
        let mut next = SlotWords::default();
        let packs = A::pack_into(&view.algorithm, state, &mut next[..self.sets.state_words]);
        if !packs {
            next = spilled_word(index, view.algorithm.forgettable_at(state));
        }
        if let Some(copy) = copy {
            *kept = copy;
        }
        if next != words || is_denied != header.is_denied(slot) {
            let mut locked = set.lock();
            locked.write_state(slot, &next);
            locked.set_denied(slot, is_denied);
        }
        if packs {
            shard.remove(index, id);
        }
        DONE
    }

    /// Runs `step` on the state shared by all keys without a slot: on a copy, so that a panic changes
    /// nothing.
    pub(super) fn update_shared(
        &self,
        view: &Epoch<A>,
        now: Tick,
        step: &mut Step<'_, A>,
    ) -> Tried {
        let mut shared = lock(&self.shared_state);
        let state = match shared.clone() {
            Some((epoch, state)) if epoch == view.number => Some(state),
            Some((epoch, state)) if epoch < view.number => view.migrate(state),
            Some(_) => return None,
            None => None,
        };
        let mut state = state.unwrap_or_else(|| view.algorithm.fresh(now));
        if step(&view.algorithm, &mut state) != Effect::Read {
            *shared = Some((view.number, state));
        }
        DONE
    }

    /// Removes a key.
    pub(super) fn remove(&self, hash: u64) {
        let is_user_code = self.epochs.current().facts.is_user_code;
        let Some(_running) = Running::enter(is_user_code) else {
            return;
        };
        let id = self.sets.key_id(hash);
        // An insertion after this read counts as one after the removal.
        let home = self.sets.set(id.home).load_header();
        for probe in 0..=home.probe_len() {
            let set = self.sets.set(self.sets.probes.set_index(id.home, probe));
            let tag = make_tag(id.fingerprint, probe);
            while let (header, Some((slot, words))) = set.lookup(tag) {
                let shard = || self.spill.shard(self.sets.group_of(id.home));
                let mut shard = is_spilled(words[0]).then(shard);
                if let Some(mut locked) = set.try_lock(header) {
                    locked.write_tag(slot, 0);
                    drop(locked);
                    if let Some(shard) = &mut shard {
                        shard.remove(spill_index(words[0]), id);
                    }
                    // The key is there once. What is inserted from now on comes after the removal.
                    return;
                }
            }
        }
    }

    /// The time at which the state in a slot expires.
    pub(super) fn forgettable_at(&self, algorithm: &A, words: &SlotWords) -> Tick {
        if is_spilled(words[0]) {
            return spill_forgettable_at(words[0]);
        }
        algorithm.forgettable_at(&A::unpack_from(algorithm, &words[..self.sets.state_words]))
    }
}

#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod tests {
    use super::*;
    use crate::algorithm::{Cost, FixedWindow, GiveBack, Inherit, TokenBucket};
    use crate::error::ConfigError;
    use crate::quota::Quota;
    use crate::store::local::overflow::Overflow;

    /// A token bucket as an algorithm of a user.
    #[derive(Clone, Debug)]
    struct Own(TokenBucket);

    impl Words for Own {}

    impl Algorithm for Own {
        type State = <TokenBucket as Algorithm>::State;

        fn quota(&self) -> Quota {
            self.0.quota()
        }

        fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
            self.0.with_quota(quota).map(Self)
        }

        fn fresh(&self, now: Tick) -> Self::State {
            self.0.fresh(now)
        }

        fn decide(&self, state: &mut Self::State, now: Tick, cost: u64) -> Decision {
            self.0.decide(state, now, cost)
        }

        fn refund(&self, state: &mut Self::State, now: Tick, cost: Cost, why: GiveBack) {
            self.0.refund(state, now, cost, why);
        }

        fn charge(&self, state: &mut Self::State, now: Tick, cost: u64) -> Duration {
            self.0.charge(state, now, cost)
        }

        fn rescale(&self, state: &mut Self::State, from: &Self, now: Tick, inherit: Inherit) {
            self.0.rescale(state, &from.0, now, inherit);
        }

        fn forgettable_at(&self, state: &Self::State) -> Tick {
            self.0.forgettable_at(state)
        }
    }

    #[test]
    fn the_slot_of_a_copied_state_says_when_it_expires_and_whether_its_key_is_denied() {
        let own = Own(TokenBucket::new(Quota::per_second(2)));
        let table = Table::new(own, 10, Overflow::Deny, Tick::ZERO);
        let id = table.sets.key_id(7);
        for (millis, is_admitted) in [(0, true), (1, true), (2, false), (3, false), (600, true)] {
            let now = Tick::from_nanos(millis * 1_000_000);
            let step = |own: &Own, state: &mut _| own.decide(state, now, 1);
            let decision = table.transition(7, now, true, step).expect("a free slot");
            assert_eq!(decision.is_admitted(), is_admitted, "at {millis} ms");
            let (header, found) = table.sets.set(id.home).lookup(id.fingerprint);
            let (slot, words) = found.expect("its slot");
            assert_eq!(header.is_denied(slot), !is_admitted, "at {millis} ms");
            let expires_at = now.plus(decision.reset_after);
            let rounded_up = spilled_word(spill_index(words[0]), expires_at);
            assert_eq!(
                spill_forgettable_at(words[0]),
                spill_forgettable_at(rounded_up[0]),
                "at {millis} ms"
            );
        }
    }

    #[test]
    fn an_expired_state_outside_the_table_is_removed_for_a_new_key() {
        let window = FixedWindow::new(Quota::per_second(10));
        let table = Table::new(window, 1, Overflow::Deny, Tick::ZERO);
        let later = Tick::from_nanos(1 << 60);
        for hash in 1..=4 {
            // So large a debt does not fit its slot.
            let step =
                |window: &FixedWindow, state: &mut _| window.charge(state, Tick::ZERO, 1 << 40);
            let charged = table.transition(hash, Tick::ZERO, true, step);
            charged.expect("a free slot");
        }
        assert_eq!(table.stats(later).outside, 4);
        let step = |window: &FixedWindow, state: &mut _| window.decide(state, later, 1);
        let decided = table.transition(5, later, true, step);
        assert!(decided.is_ok_and(|decision| decision.is_admitted()));
        assert_eq!(table.stats(later).outside, 3);
    }
}
