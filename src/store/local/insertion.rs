//! Inserts a key that has no slot: finds a free slot, or evicts another key if there is none.

use std::sync::atomic::Ordering;

use super::overflow::Overflow;
use super::probe::make_tag;
use super::slot::{Header, SetGuard, SlotWords, Snapshot};
use super::spill::{Shard, is_spilled, spill_index, spilled_word};
use super::table::Table;
use super::transition::{DONE, Effect, Operation, Tried};
use crate::algorithm::Words;
use crate::clock::Tick;

/// The slot for a new key, and what it holds now.
#[derive(Debug)]
struct Target {
    /// The set.
    at: usize,
    probe: usize,
    slot: usize,
    header: Header,
    /// Zero if the slot is empty.
    tag: u64,
    words: SlotWords,
    /// Set if the key in it is evicted before its state has expired: whether it was being denied.
    evicts: Option<bool>,
}

impl Target {
    fn new((at, probe, slot): (usize, usize, usize), set: &Snapshot) -> Self {
        Self {
            at,
            probe,
            slot,
            header: set.header,
            tag: set.tags[slot],
            words: set.states[slot],
            evicts: None,
        }
    }

    /// The index of the state of the key in it, if that is outside.
    fn outside(&self) -> Option<usize> {
        let is_outside = self.tag != 0 && is_spilled(self.words[0]);
        is_outside.then(|| spill_index(self.words[0]))
    }
}

/// The view of an operation is old: it begins once more.
struct OldView;

impl<A: Words> Table<A> {
    /// Runs an operation on a new state, and stores that in a slot. The key has none: `home` is the
    /// header of its home set from before it was searched.
    pub(super) fn insert(&self, operation: &mut Operation<'_, '_, A>, home: Header) -> Tried {
        let (view, id, now) = (operation.view, operation.id, operation.now);
        let algorithm = &view.algorithm;
        if !self.is_current(view, id.home, home) {
            return None;
        }
        let mut state = algorithm.fresh(now);
        (operation.step)(algorithm, &mut state);
        let mut until = algorithm.forgettable_at(&state);
        if !operation.keep || until <= now {
            return DONE;
        }
        let lock_shard = || self.spill.shard(self.sets.group_of(id.home));
        let mut shard = None;
        let target = match self.find_free(operation).ok()? {
            Some(target) => target,
            // Another thread may have given this key the last slot.
            None if !self.sets.set(id.home).is_unchanged(home) => return None,
            None if self.overflow == Overflow::Shared => {
                let done = self.update_shared(view, now, operation.step)?;
                self.counters.count(|counters| &counters.shared, now);
                return Some(done);
            }
            None => {
                let shard = shard.insert(lock_shard());
                let victim = match self.find_victim(operation, shard)? {
                    Ok(victim) => victim,
                    Err(soonest) => return Some(Err(soonest)),
                };
                // Otherwise keys that evict each other would start as unused again and again.
                state = self.read_state(algorithm, &victim, shard, A::State::clone)?;
                if (operation.step)(algorithm, &mut state) == Effect::Denied {
                    // There is nothing to store, and the other key keeps its slot.
                    self.counters.count(|counters| &counters.denied, now);
                    return DONE;
                }
                until = algorithm.forgettable_at(&state);
                victim
            }
        };
        let mut words = SlotWords::default();
        let packs = A::pack_into(algorithm, &state, &mut words[..self.sets.state_words]);
        if !packs || target.outside().is_some() {
            shard.get_or_insert_with(lock_shard);
        }
        // What the shard holds for nothing, if the slot is written and if it is not.
        let replaced = self.sets.key_id_at(target.at, target.tag);
        let mut unused = [None, target.outside().map(|index| (index, replaced))];
        if let (false, Some(shard)) = (packs, &mut shard) {
            let index = shard.insert(id, state);
            words = spilled_word(index, until);
            unused[0] = Some((index, id));
        }
        let is_written = self.write_slot(operation, home, &target, &words);
        if let (Some((index, id)), Some(shard)) = (unused[usize::from(is_written)], &mut shard) {
            shard.remove(index, id);
        }
        if !is_written {
            return None;
        }
        if let Some(was_denied) = target.evicts {
            if was_denied {
                self.counters.evicted_denied.fetch_add(1, Ordering::Relaxed);
            }
            self.counters.count(|counters| &counters.evicted, now);
        }
        DONE
    }

    /// The first slot of the probe sequence that is empty or whose state has expired.
    fn find_free(&self, operation: &Operation<'_, '_, A>) -> Result<Option<Target>, OldView> {
        let view = operation.view;
        for probe in 0..self.sets.probes.len {
            let at = self.sets.probes.set_index(operation.id.home, probe);
            let set = self.sets.set(at);
            let snapshot = set.snapshot();
            if !self.is_current(view, at, snapshot.header) {
                return Err(OldView);
            }
            let has_expired = |slot: &usize| {
                let words = &snapshot.states[*slot];
                self.forgettable_at(&view.algorithm, words) <= operation.now
            };
            let empty = (0..set.slots()).find(|slot| snapshot.tags[*slot] == 0);
            let slot = empty.or_else(|| (0..set.slots()).find(has_expired));
            if let Some(slot) = slot {
                return Ok(Some(Target::new((at, probe, slot), &snapshot)));
            }
        }
        Ok(None)
    }

    /// The slot whose key is evicted, or the time before which none becomes free, if no key is. `None` if
    /// the view is old. The shard is that of all these sets.
    fn find_victim(
        &self,
        operation: &Operation<'_, '_, A>,
        shard: &Shard<A::State>,
    ) -> Option<Result<Target, Tick>> {
        let (view, now) = (operation.view, operation.now);
        let evicts = self.overflow == Overflow::EvictLeast;
        let probes = &self.sets.probes;
        let sets = if evicts {
            probes.eviction_len()
        } else {
            probes.len
        };
        let mut soonest = Tick::MAX;
        let mut least: Option<((bool, Tick), Target)> = None;
        for probe in 0..sets {
            let at = probes.set_index(operation.id.home, probe);
            let set = self.sets.set(at);
            let snapshot = set.snapshot();
            if !snapshot.header.is_of_epoch(view.number) {
                return None;
            }
            for slot in 0..set.slots() {
                let until = self.forgettable_at(&view.algorithm, &snapshot.states[slot]);
                soonest = soonest.min(until);
                // Checking the limit is expensive. Skip it if this key would lose more than the
                // best candidate in any case.
                let marked = snapshot.header.is_denied(slot);
                let loses_more = |least: &((bool, Tick), _)| least.0 < (marked, until);
                if !evicts || least.as_ref().is_some_and(loses_more) {
                    continue;
                }
                let mut target = Target::new((at, probe, slot), &snapshot);
                let peek = |state: &_| view.algorithm.peek(state, now, 1);
                let peek = || self.read_state(&view.algorithm, &target, shard, peek);
                let denied = marked || peek().is_some_and(|decision| decision.is_denied());
                if least.as_ref().is_none_or(|least| (denied, until) < least.0) {
                    target.evicts = Some(denied);
                    least = Some(((denied, until), target));
                }
            }
        }
        Some(least.map(|(_, target)| target).ok_or(soonest))
    }

    /// Reads the state of the key in a slot. `None` if it is no longer in the shard.
    fn read_state<T>(
        &self,
        algorithm: &A,
        target: &Target,
        shard: &Shard<A::State>,
        read: impl FnOnce(&A::State) -> T,
    ) -> Option<T> {
        if let Some(index) = target.outside() {
            let id = self.sets.key_id_at(target.at, target.tag);
            return shard.get(index, id).map(read);
        }
        let words = &target.words[..self.sets.state_words];
        Some(read(&A::unpack_from(algorithm, words)))
    }

    /// Writes the key into `target`. Returns false if its home set or that slot's set has changed.
    fn write_slot(
        &self,
        operation: &Operation<'_, '_, A>,
        home: Header,
        target: &Target,
        words: &SlotWords,
    ) -> bool {
        let id = operation.id;
        let (home_set, set) = (self.sets.set(id.home), self.sets.set(target.at));
        let longest = self.sets.longest_probe(id.home, home.probe_len());
        let longest = longest.max(target.probe);
        let write = |locked: &mut SetGuard<'_>| {
            locked.write_state(target.slot, words);
            locked.write_tag(target.slot, make_tag(id.fingerprint, target.probe));
        };
        if target.probe == 0 && target.header != home {
            return false;
        }
        // Both are only tried, so their order prevents no deadlock.
        let Some(mut home_guard) = home_set.try_lock(home) else {
            return false;
        };
        if target.probe == 0 {
            write(&mut home_guard);
        } else {
            let Some(mut guard) = set.try_lock(target.header) else {
                return false;
            };
            write(&mut guard);
        }
        home_guard.set_probe_len(longest);
        true
    }
}
