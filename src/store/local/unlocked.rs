//! Spilled states of an algorithm that is not one of this crate's.
//!
//! Such an algorithm may do anything while it runs, also use the table that runs it. So it works on
//! a copy of the state while nothing is locked. Each write of such a state stamps its entry. If the
//! stamp is still the one that was read with the copy, the copy replaces the state.

use std::mem::replace;

use super::attempt::TryResult;
use super::epoch::EpochView;
use super::probe::make_tag;
use super::sets::spin_lock;
use super::slot::SlotWords;
use super::spill::{KeyId, is_spilled, spill_index, spilled_word};
use super::states::{Effect, Step};
use super::table::Table;
use crate::algorithm::Words;
use crate::store::cold;

impl<A: Words> Table<A> {
    /// Runs `step` on a copy of a spilled state and writes it back.
    pub(super) fn update_copy(
        &self,
        view: &EpochView<'_, A>,
        id: KeyId,
        probe: usize,
        step: &mut Step<'_, A>,
    ) -> TryResult {
        let algorithm = view.algorithm();
        let sets = &self.core.sets;
        let at = sets.probes.set_index(id.home, probe);
        let (set, group) = (sets.set(at), sets.group_of(id.home));

        let shard = self.spill.shard(group);
        let tag = make_tag(id.fingerprint, probe);
        let (header, found) = set.lookup(tag);
        let Some((_, words)) = found.filter(|(_, words)| is_spilled(words[0])) else {
            return TryResult::Retry;
        };
        if !header.is_of_epoch(view.epoch()) {
            return TryResult::Retry;
        }
        let index = spill_index(words[0]);
        let stamp = shard.stamp_of(index);
        let Some(kept) = shard.get(index, id) else {
            return TryResult::Retry;
        };
        let is_current = kept.epoch == view.epoch();
        let mut state = kept.state.clone();
        drop(shard);
        if !is_current {
            return self.migrate_set(view, at);
        }

        let effect = step(algorithm, &mut state);
        if effect == Effect::Read {
            return TryResult::Done;
        }
        let mut next = SlotWords::default();
        let packs = cold::pack(algorithm, &state, &mut next[..self.state_words()]);
        if !packs {
            next = spilled_word(index, cold::forgettable_at(algorithm, &state));
        }

        let mut shard = self.spill.shard(group);
        // As for a state that is changed in place: while the shard is locked, no other thread moves
        // the state or its slot.
        let (header, found) = set.lookup(tag);
        let Some((slot, words)) = found.filter(|(_, words)| is_spilled(words[0])) else {
            return TryResult::Retry;
        };
        let is_same = spill_index(words[0]) == index && shard.stamp_of(index) == stamp;
        if !is_same {
            return TryResult::Retry;
        }
        let Some(kept) = shard.get_mut(index, id) else {
            return TryResult::Retry;
        };
        if kept.epoch != view.epoch() {
            return TryResult::Retry;
        }
        let denied = effect == Effect::Denied;
        if next != words || denied != header.is_denied(slot) {
            let mut locked = spin_lock(set);
            locked.write_words(slot, &next);
            locked.set_denied(slot, denied);
        }
        let old = replace(&mut kept.state, state);
        let removed = packs.then(|| shard.remove(index, id));
        shard.stamp(index);
        // Dropping a state may run code that is not of this crate either.
        drop(shard);
        drop((old, removed));
        TryResult::Done
    }
}

#[cfg(all(test, not(tower_throttle_loom), not(tower_throttle_shuttle)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::algorithm::{Algorithm, Cost, GiveBack, Inherit, TokenBucket};
    use crate::clock::Tick;
    use crate::decision::Decision;
    use crate::error::ConfigError;
    use crate::quota::Quota;
    use crate::store::local::{overflow::Overflow, spill::spill_forgettable_at};

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
        let id = table.core.sets.key_id(7);
        for (millis, is_admitted) in [(0, true), (1, true), (2, false), (3, false), (600, true)] {
            let now = Tick::from_nanos(millis * 1_000_000);
            let step = |own: &Own, state: &mut _| own.decide(state, now, 1);
            let decision = table.transition(7, now, true, step).expect("a free slot");
            assert_eq!(decision.is_admitted(), is_admitted, "at {millis} ms");
            let (header, found) = table.core.sets.set(id.home).lookup(id.fingerprint);
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
}
