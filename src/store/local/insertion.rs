//! Inserting a key that has no slot: finding a slot, and evicting another key if there is none.

use super::attempt::{Core, StateOps, TryResult, is_of_epoch};
use super::overflow::{Counters, Overflow};
use super::probe::make_tag;
use super::slot::{Header, SetGuard, Snapshot, Words};
use super::spill::{KeyId, is_spilled, spill_index, spilled_word};
use crate::clock::Tick;

/// A slot that a new key may take.
#[derive(Debug)]
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

impl Core {
    /// Decides for a key that has no slot, and stores its state in one.
    pub(super) fn insert(
        &self,
        ops: &mut dyn StateOps,
        id: KeyId,
        home: Header,
        now: Tick,
        keep: bool,
    ) -> TryResult {
        let mut until = ops.create(now);
        if !keep || until <= now {
            return TryResult::Done;
        }
        let (place, victim) = match self.find_slot(ops, id, now) {
            Ok(Some(place)) => (place, None),
            // Another thread may have given this key the last slot.
            Ok(None) if !self.sets.set(id.home).is_unchanged(home) => return TryResult::Retry,
            Ok(None) if self.overflow == Overflow::Shared => return ops.run_shared(now),
            Ok(None) => match self.find_victim(ops, id, now) {
                Ok((place, words)) => (place, Some(words)),
                Err(full) => return full,
            },
            Err(retry) => return retry,
        };
        let at = self.sets.probes.set_index(id.home, place.probe);
        let replaced = self.sets.key_id_at(at, place.tag);
        let group = self.sets.group_of(id.home);
        if place.spill_index.is_some() {
            ops.lock_shard(group);
        }
        if let Some(words) = &victim {
            // Else keys that evict each other would start afresh for ever.
            match ops.inherit(words, replaced) {
                Some(inherited) => until = inherited,
                None => return TryResult::Retry,
            }
        }
        let mut words = Words::default();
        let packs = ops.pack(&mut words);
        if packs && victim == Some(words) {
            // Denied: there is nothing to store.
            Counters::count(&self.counters.denied);
            return TryResult::Done;
        }
        let mut spilled = None;
        if !packs {
            if place.spill_index.is_none() {
                ops.lock_shard(group);
            }
            let index = ops.spill(id);
            spilled = Some((index, id));
            words = spilled_word(index, until);
        }
        let written = self.write_slot(id, home, &place, &words);
        let unused = if written {
            place.spill_index.map(|index| (index, replaced))
        } else {
            spilled
        };
        if let Some((index, id)) = unused {
            ops.remove(index, id);
        }
        if !written {
            return TryResult::Retry;
        }
        self.count_eviction(&place);
        TryResult::Done
    }

    /// The first slot of the probe sequence that is empty or whose state has expired.
    fn find_slot(
        &self,
        ops: &mut dyn StateOps,
        id: KeyId,
        now: Tick,
    ) -> Result<Option<TargetSlot>, TryResult> {
        for probe in 0..self.sets.probes.len {
            let at = self.sets.probes.set_index(id.home, probe);
            let set = self.sets.set(at);
            let snapshot = set.snapshot();
            if !is_of_epoch(snapshot.header, ops) {
                return Err(ops.migrate_set(at));
            }
            let mut forgettable = None;
            for slot in 0..set.slots() {
                if snapshot.tags[slot] == 0 {
                    return Ok(Some(TargetSlot::new(probe, slot, &snapshot)));
                }
                if forgettable.is_none() && ops.forgettable_at(&snapshot.states[slot]) <= now {
                    forgettable = Some(slot);
                }
            }
            if let Some(slot) = forgettable {
                return Ok(Some(TargetSlot::new(probe, slot, &snapshot)));
            }
        }
        Ok(None)
    }

    /// The slot whose key is evicted, with its state, or `Full` if the policy evicts none.
    fn find_victim(
        &self,
        ops: &mut dyn StateOps,
        id: KeyId,
        now: Tick,
    ) -> Result<(TargetSlot, Words), TryResult> {
        let evicts = self.overflow == Overflow::EvictLeast;
        let sets = if evicts {
            self.sets.probes.eviction_len()
        } else {
            self.sets.probes.len
        };
        let mut soonest = Tick::MAX;
        let mut least: Option<((bool, Tick), (TargetSlot, Words))> = None;
        for probe in 0..sets {
            let at = self.sets.probes.set_index(id.home, probe);
            let set = self.sets.set(at);
            let snapshot = set.snapshot();
            if !is_of_epoch(snapshot.header, ops) {
                return Err(ops.migrate_set(at));
            }
            for slot in 0..set.slots() {
                let words = &snapshot.states[slot];
                let until = ops.forgettable_at(words);
                soonest = soonest.min(until);
                // The test for denial is expensive. Skip it if this key would lose more anyway.
                let loses_more = |least: &((bool, Tick), _)| least.0 < (false, until);
                if !evicts || least.as_ref().is_some_and(loses_more) {
                    continue;
                }
                let denied = ops.is_denied(at, snapshot.tags[slot], words, now);
                let loses = (denied, until);
                if least.as_ref().is_none_or(|least| loses < least.0) {
                    let evicts_denied = Some(denied);
                    let place = TargetSlot {
                        evicts_denied,
                        ..TargetSlot::new(probe, slot, &snapshot)
                    };
                    least = Some((loses, (place, *words)));
                }
            }
        }
        match least {
            // Denied without a copy of a state that may be large.
            Some(((true, _), (place, _))) if place.spill_index.is_some() => {
                Err(TryResult::Full(soonest))
            }
            Some((_, victim)) => Ok(victim),
            None => Err(TryResult::Full(soonest)),
        }
    }

    fn count_eviction(&self, place: &TargetSlot) {
        if let Some(denied) = place.evicts_denied {
            Counters::count(&self.counters.evicted);
            if denied {
                Counters::count(&self.counters.evicted_denied);
            }
        }
    }

    /// Writes a new key into `place`. Returns false if its home set or that slot's set has changed.
    fn write_slot(&self, id: KeyId, home: Header, place: &TargetSlot, words: &Words) -> bool {
        let at = self.sets.probes.set_index(id.home, place.probe);
        let (home_set, set) = (self.sets.set(id.home), self.sets.set(at));
        let longest = self
            .sets
            .longest_probe(id.home, home.probe_len())
            .max(place.probe);
        let write = |locked: &mut SetGuard<'_>| {
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
}

impl TargetSlot {
    fn new(probe: usize, slot: usize, snapshot: &Snapshot) -> Self {
        let first = snapshot.states[slot][0];
        Self {
            probe,
            slot,
            header: snapshot.header,
            tag: snapshot.tags[slot],
            spill_index: (snapshot.tags[slot] != 0 && is_spilled(first))
                .then(|| spill_index(first)),
            evicts_denied: None,
        }
    }
}
