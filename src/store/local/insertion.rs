//! Inserts a key that has no slot: finds a free slot, or evicts another key if there is none.

use std::sync::atomic::Ordering;

use super::attempt::{Core, StateOps, TryResult, is_of_epoch};
use super::overflow::Overflow;
use super::probe::make_tag;
use super::slot::{Header, SetGuard, SlotWords, Snapshot};
use super::spill::{KeyId, is_spilled, spill_index, spilled_word};
use crate::clock::Tick;

/// The slot for a new key.
#[derive(Debug)]
struct TargetSlot {
    probe: usize,
    slot: usize,
    header: Header,
    /// The tag of the key that holds the slot now. Zero if the slot is empty.
    tag: u64,
    /// The index of that key's state in the spill store, if it has spilled.
    spill_index: Option<usize>,
    /// Set if that key is evicted before its state has expired: whether it was being denied.
    evicts_denied: Option<bool>,
}

impl Core {
    /// Stores the state of a key that has no slot in one. The state was created and expires at
    /// `until`.
    pub(super) fn insert(
        &self,
        ops: &mut dyn StateOps,
        id: KeyId,
        home: Header,
        now: Tick,
        mut until: Tick,
    ) -> TryResult {
        let (target, victim) = match self.find_slot(ops, id, now) {
            Ok(Some(target)) => (target, None),
            // Another thread may have given this key the last slot.
            Ok(None) if !self.sets.set(id.home).is_unchanged(home) => return TryResult::Retry,
            Ok(None) if self.overflow == Overflow::Shared => return ops.run_shared(now),
            Ok(None) => match self.find_victim(ops, id, now) {
                Ok((target, words)) => (target, Some(words)),
                Err(full) => return full,
            },
            Err(retry) => return retry,
        };
        let at = self.sets.probes.set_index(id.home, target.probe);
        let replaced = self.sets.key_id_at(at, target.tag);
        let group = self.sets.group_of(id.home);
        if target.spill_index.is_some() {
            ops.lock_shard(group);
        }
        if let Some(words) = &victim {
            // Otherwise keys that evict each other would start as unused again and again.
            match ops.inherit(words, replaced) {
                Some(inherited) => until = inherited,
                None => return TryResult::Retry,
            }
        }
        if victim.is_some() && ops.was_denied() {
            // There is nothing to store, and the other key keeps its slot.
            self.counters.count(|counters| &counters.denied, now);
            return TryResult::Done;
        }
        let mut words = SlotWords::default();
        let packs = ops.pack(&mut words);
        let mut spilled = None;
        if !packs {
            if target.spill_index.is_none() {
                ops.lock_shard(group);
            }
            let index = ops.spill(id);
            spilled = Some((index, id));
            words = spilled_word(index, until);
        }
        let written = self.write_slot(id, home, &target, &words);
        let unused = if written {
            target.spill_index.map(|index| (index, replaced))
        } else {
            spilled
        };
        if let Some((index, id)) = unused {
            ops.remove(index, id);
        }
        if !written {
            return TryResult::Retry;
        }
        self.count_eviction(&target, now);
        TryResult::Done
    }

    /// The first slot of the probe sequence that is empty or whose state has expired.
    fn find_slot(
        &self,
        ops: &mut dyn StateOps,
        id: KeyId,
        now: Tick,
    ) -> Result<Option<TargetSlot>, TryResult> {
        let mut snapshot = Snapshot::default();
        for probe in 0..self.sets.probes.len {
            let at = self.sets.probes.set_index(id.home, probe);
            let set = self.sets.set(at);
            set.copy_to(&mut snapshot);
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

    /// The slot whose key is evicted, with the words of its state. `Full` if no key is evicted.
    fn find_victim(
        &self,
        ops: &mut dyn StateOps,
        id: KeyId,
        now: Tick,
    ) -> Result<(TargetSlot, SlotWords), TryResult> {
        let evicts = self.overflow == Overflow::EvictLeast;
        let sets = if evicts {
            self.sets.probes.eviction_len()
        } else {
            self.sets.probes.len
        };
        let mut soonest = Tick::MAX;
        let mut least: Option<((bool, Tick), (TargetSlot, SlotWords))> = None;
        let mut snapshot = Snapshot::default();
        for probe in 0..sets {
            let at = self.sets.probes.set_index(id.home, probe);
            let set = self.sets.set(at);
            set.copy_to(&mut snapshot);
            if !is_of_epoch(snapshot.header, ops) {
                return Err(ops.migrate_set(at));
            }
            for slot in 0..set.slots() {
                let words = &snapshot.states[slot];
                let until = ops.forgettable_at(words);
                soonest = soonest.min(until);
                // Checking the limit is expensive. Skip it if this key would lose more than the
                // best candidate in any case.
                let marked = snapshot.header.is_denied(slot);
                let loses_more = |least: &((bool, Tick), _)| least.0 < (marked, until);
                if !evicts || least.as_ref().is_some_and(loses_more) {
                    continue;
                }
                let exhausted = || ops.is_exhausted(at, snapshot.tags[slot], words, now);
                let denied = marked || exhausted();
                let loses = (denied, until);
                if least.as_ref().is_none_or(|least| loses < least.0) {
                    let evicts_denied = Some(denied);
                    let target = TargetSlot {
                        evicts_denied,
                        ..TargetSlot::new(probe, slot, &snapshot)
                    };
                    least = Some((loses, (target, *words)));
                }
            }
        }
        match least {
            // Deny without copying a state that may be large.
            Some(((true, _), (target, words)))
                if target.spill_index.is_some()
                    && ops.is_exhausted(
                        self.sets.probes.set_index(id.home, target.probe),
                        target.tag,
                        &words,
                        now,
                    ) =>
            {
                Err(TryResult::Full(soonest))
            }
            Some((_, victim)) => Ok(victim),
            None => Err(TryResult::Full(soonest)),
        }
    }

    fn count_eviction(&self, target: &TargetSlot, now: Tick) {
        if let Some(denied) = target.evicts_denied {
            if denied {
                self.counters.evicted_denied.fetch_add(1, Ordering::Relaxed);
            }
            self.counters.count(|counters| &counters.evicted, now);
        }
    }

    /// Writes a new key into `target`. Returns false if its home set or that slot's set has
    /// changed.
    fn write_slot(&self, id: KeyId, home: Header, target: &TargetSlot, words: &SlotWords) -> bool {
        let at = self.sets.probes.set_index(id.home, target.probe);
        let (home_set, set) = (self.sets.set(id.home), self.sets.set(at));
        let longest = self
            .sets
            .longest_probe(id.home, home.probe_len())
            .max(target.probe);
        let write = |locked: &mut SetGuard<'_>| {
            locked.write_words(target.slot, words);
            locked.write_tag(target.slot, make_tag(id.fingerprint, target.probe));
        };
        if target.probe == 0 {
            if target.header != home {
                return false;
            }
            let Some(mut locked) = set.try_lock(home) else {
                return false;
            };
            write(&mut locked);
            locked.set_probe_len(longest);
            return true;
        }
        let mut home_guard;
        let mut target_guard;
        if id.home < at {
            home_guard = home_set.try_lock(home);
            target_guard = home_guard
                .as_ref()
                .and_then(|_| set.try_lock(target.header));
        } else {
            target_guard = set.try_lock(target.header);
            home_guard = target_guard.as_ref().and_then(|_| home_set.try_lock(home));
        }
        let (Some(home_guard), Some(target_guard)) = (&mut home_guard, &mut target_guard) else {
            return false;
        };
        write(target_guard);
        home_guard.set_probe_len(longest);
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
