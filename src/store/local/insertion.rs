//! Inserting a key that has no slot: finding a slot, and evicting another key if there is none.

use super::epoch::EpochView;
use super::overflow::{Counters, Overflow};
use super::probe::{make_tag, probe_of_tag};
use super::slot::{Header, Set, SetGuard, Snapshot};
use super::spill::{KeyId, VersionedState, is_spilled, spill_index, spilled_word};
use super::table::{Table, Transition, TryResult, slot_forgettable_at};
use crate::algorithm::{Algorithm, Packing};
use crate::clock::Tick;
use crate::sync::lock;

/// A slot that a new key may take.
struct TargetSlot {
    probe: usize,
    slot: usize,
    header: Header,
    /// The key that holds the slot now; zero if there is none.
    tag: u64,
    /// The index of that key's state in the spill store, if it has spilled.
    spill_index: Option<usize>,
    /// Set if that key is evicted before its state has expired; true if it is being denied.
    evicts_denied: Option<bool>,
}

impl<A: Algorithm> Table<A> {
    /// Decides for a key that has no slot, and stores its state in one.
    pub(super) fn insert<const W: usize, T>(
        &self,
        view: &EpochView<'_, A>,
        id: KeyId,
        home: Header,
        now: Tick,
        keep: bool,
        step: &impl Transition<A, T>,
    ) -> TryResult<T> {
        let algorithm = view.algorithm();
        let mut state = algorithm.fresh(now);
        let result = step.run(algorithm, &mut state);
        if !keep || algorithm.forgettable_at(&state) <= now {
            return TryResult::Done(result);
        }
        let place = match self.find_slot::<W, T>(view, id, now) {
            Ok(Some(place)) => place,
            Ok(None) if self.overflow == Overflow::Shared => {
                return self.run_shared(view, now, step);
            }
            Ok(None) => match self.find_victim::<W, T>(view, id, now) {
                Ok(place) => place,
                Err(full) => return full,
            },
            Err(again) => return again,
        };
        let mut words = [0; W];
        let packs = A::Packing::pack_into(algorithm, &state, &mut words);
        let mut shard = (!packs || place.spill_index.is_some())
            .then(|| self.spill.shard(self.group_of(id.home)));
        let mut spilled_at = None;
        if let (false, Some(shard)) = (packs, &mut shard) {
            let until = algorithm.forgettable_at(&state);
            let epoch = view.epoch();
            let index = shard.insert(id, VersionedState { state, epoch });
            spilled_at = Some(index);
            words = spilled_word(index, until);
        }
        let written = self.write_slot::<W>(id, home, &place, &words);
        let unused = if written {
            let at = self.probes.set_index(id.home, place.probe);
            place
                .spill_index
                .map(|index| (index, self.key_id_at(at, place.tag)))
        } else {
            spilled_at.map(|index| (index, id))
        };
        if let (Some(shard), Some((index, id))) = (&mut shard, unused) {
            shard.remove(index, id);
        }
        if !written {
            return TryResult::Retry;
        }
        self.count_eviction(&place);
        TryResult::Done(result)
    }

    /// The first slot of the probe sequence that is empty or whose state has expired.
    fn find_slot<const W: usize, T>(
        &self,
        view: &EpochView<'_, A>,
        id: KeyId,
        now: Tick,
    ) -> Result<Option<TargetSlot>, TryResult<T>> {
        for probe in 0..self.probes.len {
            let at = self.probes.set_index(id.home, probe);
            let snapshot = self.set::<W>(at).snapshot();
            if snapshot.header.epoch() != view.epoch() & 0xFFF {
                return Err(self.migrate_set::<W, T>(view, at));
            }
            let mut forgettable = None;
            for slot in 0..Set::<W>::SLOTS {
                if snapshot.tags[slot] == 0 {
                    return Ok(Some(TargetSlot::new(probe, slot, &snapshot)));
                }
                if forgettable.is_none()
                    && slot_forgettable_at(view.algorithm(), &snapshot.states[slot]) <= now
                {
                    forgettable = Some(slot);
                }
            }
            if let Some(slot) = forgettable {
                return Ok(Some(TargetSlot::new(probe, slot, &snapshot)));
            }
        }
        Ok(None)
    }

    /// The slot whose key is evicted, or `Full` if the policy evicts none.
    #[cold]
    #[inline(never)]
    fn find_victim<const W: usize, T>(
        &self,
        view: &EpochView<'_, A>,
        id: KeyId,
        now: Tick,
    ) -> Result<TargetSlot, TryResult<T>> {
        let algorithm = view.algorithm();
        let evicts = self.overflow == Overflow::EvictLeast;
        let sets = if evicts {
            self.probes.eviction_len()
        } else {
            self.probes.len
        };
        let mut soonest = Tick::MAX;
        let mut least: Option<((bool, Tick), TargetSlot)> = None;
        for probe in 0..sets {
            let at = self.probes.set_index(id.home, probe);
            let snapshot = self.set::<W>(at).snapshot();
            if snapshot.header.epoch() != view.epoch() & 0xFFF {
                return Err(self.migrate_set::<W, T>(view, at));
            }
            for slot in 0..Set::<W>::SLOTS {
                let words = &snapshot.states[slot];
                let until = slot_forgettable_at(algorithm, words);
                soonest = soonest.min(until);
                // The test for denial is expensive. Skip it if this key would lose more anyway.
                let loses_more = |least: &((bool, Tick), TargetSlot)| least.0 < (false, until);
                if !evicts || least.as_ref().is_some_and(loses_more) {
                    continue;
                }
                let denied = self.is_state_denied(algorithm, at, snapshot.tags[slot], words, now);
                let loses = (denied, until);
                if least.as_ref().is_none_or(|least| loses < least.0) {
                    let evicts_denied = Some(denied);
                    least = Some((
                        loses,
                        TargetSlot {
                            evicts_denied,
                            ..TargetSlot::new(probe, slot, &snapshot)
                        },
                    ));
                }
            }
        }
        least.map_or(Err(TryResult::Full(soonest)), |(_, place)| Ok(place))
    }

    fn count_eviction(&self, place: &TargetSlot) {
        if let Some(denied) = place.evicts_denied {
            Counters::count(&self.counters.evicted);
            if denied {
                Counters::count(&self.counters.evicted_denied);
            }
        }
    }

    fn is_state_denied<const W: usize>(
        &self,
        algorithm: &A,
        at: usize,
        tag: u64,
        words: &[u64; W],
        now: Tick,
    ) -> bool {
        if !is_spilled(words) {
            let state = A::Packing::unpack_from(algorithm, words);
            return algorithm.peek(&state, now, 1).is_denied();
        }
        let shard = self.spill.shard(self.group_of(at));
        shard
            .get(spill_index(words[0]), self.key_id_at(at, tag))
            .is_some_and(|kept| algorithm.peek(&kept.state, now, 1).is_denied())
    }

    /// Runs `step` on the state shared by all keys without a slot.
    #[cold]
    pub(super) fn run_shared<T>(
        &self,
        view: &EpochView<'_, A>,
        now: Tick,
        step: &impl Transition<A, T>,
    ) -> TryResult<T> {
        let mut shared = lock(&self.shared_state);
        let Some(behind) = view.epochs_behind(shared.epoch & 0xFFF) else {
            return TryResult::StaleEpoch;
        };
        // On a copy, so that a panic leaves the old state.
        let mut state = shared.state.clone();
        if !view.migrate_state(&mut state, behind) {
            state = view.algorithm().fresh(now);
        }
        let result = step.run(view.algorithm(), &mut state);
        *shared = VersionedState {
            state,
            epoch: view.epoch(),
        };
        Counters::count(&self.counters.shared);
        TryResult::Done(result)
    }

    /// Writes a new key into `place`. Returns false if its home set or that slot's set has changed.
    fn write_slot<const W: usize>(
        &self,
        id: KeyId,
        home: Header,
        place: &TargetSlot,
        words: &[u64; W],
    ) -> bool {
        let at = self.probes.set_index(id.home, place.probe);
        let (home_set, set) = (self.set::<W>(id.home), self.set::<W>(at));
        let longest = self
            .longest_probe::<W>(id.home, home.probe_len())
            .max(place.probe);
        let write = |locked: &mut SetGuard<'_, W>| {
            locked.write_state(place.slot, words);
            locked.write_tag(place.slot, make_tag(id.fingerprint, place.probe));
        };
        if place.probe == 0 {
            if place.header != home {
                return false;
            }
            let Some(mut locked) = set.try_lock(home) else {
                return false;
            };
            write(&mut locked);
            locked.set_probe_len(longest);
            return true;
        }
        let mut homes;
        let mut places;
        if id.home < at {
            homes = home_set.try_lock(home);
            places = homes.as_ref().and_then(|_| set.try_lock(place.header));
        } else {
            places = set.try_lock(place.header);
            homes = places.as_ref().and_then(|_| home_set.try_lock(home));
        }
        let (Some(homes), Some(places)) = (&mut homes, &mut places) else {
            return false;
        };
        write(places);
        homes.set_probe_len(longest);
        true
    }

    /// How far from its home the farthest key of a home lives, at most `reach`. Only the holder of
    /// the home's lock adds to it, so the result is never too small if the home is unchanged.
    fn longest_probe<const W: usize>(&self, home: usize, probe_len: usize) -> usize {
        (1..=probe_len)
            .rev()
            .find(|probe| {
                let snapshot = self
                    .set::<W>(self.probes.set_index(home, *probe))
                    .snapshot();
                snapshot
                    .tags
                    .iter()
                    .any(|tag| *tag != 0 && probe_of_tag(*tag) == *probe)
            })
            .unwrap_or(0)
    }
}

impl TargetSlot {
    fn new<const W: usize>(probe: usize, slot: usize, snapshot: &Snapshot<W>) -> Self {
        Self {
            probe,
            slot,
            header: snapshot.header,
            tag: snapshot.tags[slot],
            spill_index: (snapshot.tags[slot] != 0 && is_spilled(&snapshot.states[slot]))
                .then(|| spill_index(snapshot.states[slot][0])),
            evicts_denied: None,
        }
    }
}
