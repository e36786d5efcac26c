//! A key that has no slot: where it finds one, and who has to go.

use super::epoch::EpochView;
use super::overflow::{Counters, Overflow};
use super::probe::{probe_of_tag, tag};
use super::slot::{Header, Set, SetGuard, Snapshot};
use super::spill::{KeyId, VersionedState, index, is_spilled, spilled_word};
use super::table::{Table, Transition, TryResult, forgettable_at};
use crate::algorithm::Algorithm;
use crate::clock::Tick;
use crate::sync::lock;

/// A slot that a new key may have.
struct TargetSlot {
    steps: usize,
    slot: usize,
    header: Header,
    /// The key that has it so far, if not zero.
    tag: u64,
    /// Where its state stands outside, if it does.
    outside: Option<usize>,
    /// That key goes before its time; whether it is being denied.
    evicts: Option<bool>,
}

impl<A: Algorithm> Table<A> {
    /// Decides for a key that has no slot, and finds it one.
    pub(super) fn newcomer<const W: usize, T>(
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
        let answer = step.run(algorithm, &mut state);
        if !keep || algorithm.forgettable_at(&state) <= now {
            return TryResult::Done(answer);
        }
        let place = match self.room::<W, T>(view, id, now) {
            Ok(Some(place)) => place,
            Ok(None) if self.overflow == Overflow::Shared => return self.share(view, now, step),
            Ok(None) => match self.make_room::<W, T>(view, id, now) {
                Ok(place) => place,
                Err(full) => return full,
            },
            Err(again) => return again,
        };
        let mut words = [0; W];
        let packs = algorithm.pack_into(&state, &mut words);
        let mut shard =
            (!packs || place.outside.is_some()).then(|| self.outside.shard(self.group(id.home)));
        let mut stands = None;
        if let (false, Some(shard)) = (packs, &mut shard) {
            let until = algorithm.forgettable_at(&state);
            let regime = view.number();
            let index = shard.insert(id, VersionedState { state, regime });
            stands = Some(index);
            words = spilled_word(index, until);
        }
        let settled = self.settle::<W>(id, home, &place, &words);
        let leaves = if settled {
            let at = self.probes.near(id.home, place.steps);
            place
                .outside
                .map(|index| (index, self.key_id_at(at, place.tag)))
        } else {
            stands.map(|index| (index, id))
        };
        if let (Some(shard), Some((index, id))) = (&mut shard, leaves) {
            shard.remove(index, id);
        }
        if !settled {
            return TryResult::Retry;
        }
        self.count(&place);
        TryResult::Done(answer)
    }

    /// The first slot near a home that is empty or may be forgotten.
    fn room<const W: usize, T>(
        &self,
        view: &EpochView<'_, A>,
        id: KeyId,
        now: Tick,
    ) -> Result<Option<TargetSlot>, TryResult<T>> {
        for steps in 0..self.probes.len {
            let at = self.probes.near(id.home, steps);
            let snapshot = self.set::<W>(at).snapshot();
            if snapshot.header.generation() != view.number() & 0xFFF {
                return Err(self.migrate_set::<W, T>(view, at));
            }
            let mut forgettable = None;
            for slot in 0..Set::<W>::SLOTS {
                if snapshot.tags[slot] == 0 {
                    return Ok(Some(TargetSlot::new(steps, slot, &snapshot)));
                }
                if forgettable.is_none()
                    && forgettable_at(view.algorithm(), &snapshot.states[slot]) <= now
                {
                    forgettable = Some(slot);
                }
            }
            if let Some(slot) = forgettable {
                return Ok(Some(TargetSlot::new(steps, slot, &snapshot)));
            }
        }
        Ok(None)
    }

    /// The slot whose key has to go.
    #[cold]
    #[inline(never)]
    fn make_room<const W: usize, T>(
        &self,
        view: &EpochView<'_, A>,
        id: KeyId,
        now: Tick,
    ) -> Result<TargetSlot, TryResult<T>> {
        let algorithm = view.algorithm();
        let evicts = self.overflow == Overflow::EvictLeast;
        let sets = if evicts {
            self.probes.enough()
        } else {
            self.probes.len
        };
        let mut soonest = Tick::MAX;
        let mut least: Option<((bool, Tick), TargetSlot)> = None;
        for steps in 0..sets {
            let at = self.probes.near(id.home, steps);
            let snapshot = self.set::<W>(at).snapshot();
            if snapshot.header.generation() != view.number() & 0xFFF {
                return Err(self.migrate_set::<W, T>(view, at));
            }
            for slot in 0..Set::<W>::SLOTS {
                let words = &snapshot.states[slot];
                let until = forgettable_at(algorithm, words);
                soonest = soonest.min(until);
                // Asking whether it is denied is dear, and of no use where it loses more anyway.
                let loses_more = |least: &((bool, Tick), TargetSlot)| least.0 < (false, until);
                if !evicts || least.as_ref().is_some_and(loses_more) {
                    continue;
                }
                let denied = self.is_denied(algorithm, at, snapshot.tags[slot], words, now);
                let loses = (denied, until);
                if least.as_ref().is_none_or(|least| loses < least.0) {
                    let evicts = Some(denied);
                    least = Some((
                        loses,
                        TargetSlot {
                            evicts,
                            ..TargetSlot::new(steps, slot, &snapshot)
                        },
                    ));
                }
            }
        }
        least.map_or(Err(TryResult::Full(soonest)), |(_, place)| Ok(place))
    }

    fn count(&self, place: &TargetSlot) {
        if let Some(denied) = place.evicts {
            Counters::count(&self.counters.evicted);
            if denied {
                Counters::count(&self.counters.evicted_denied);
            }
        }
    }

    fn is_denied<const W: usize>(
        &self,
        algorithm: &A,
        at: usize,
        tag: u64,
        words: &[u64; W],
        now: Tick,
    ) -> bool {
        if !is_spilled(words) {
            let state = algorithm.unpack_from(words);
            return algorithm.peek(&state, now, 1).is_denied();
        }
        let shard = self.outside.shard(self.group(at));
        shard
            .get(index(words[0]), self.key_id_at(at, tag))
            .is_some_and(|kept| algorithm.peek(&kept.state, now, 1).is_denied())
    }

    /// Decides by the state that keys without a slot share.
    #[cold]
    pub(super) fn share<T>(
        &self,
        view: &EpochView<'_, A>,
        now: Tick,
        step: &impl Transition<A, T>,
    ) -> TryResult<T> {
        let mut shared = lock(&self.shared);
        let Some(behind) = view.behind(shared.regime & 0xFFF) else {
            return TryResult::StaleEpoch;
        };
        // On a copy: a panic leaves what was there.
        let mut state = shared.state.clone();
        if !view.carry(&mut state, behind) {
            state = view.algorithm().fresh(now);
        }
        let answer = step.run(view.algorithm(), &mut state);
        *shared = VersionedState {
            state,
            regime: view.number(),
        };
        Counters::count(&self.counters.shared);
        TryResult::Done(answer)
    }

    /// Writes a new key into its place, if neither its home nor the place has changed.
    fn settle<const W: usize>(
        &self,
        id: KeyId,
        home: Header,
        place: &TargetSlot,
        words: &[u64; W],
    ) -> bool {
        let at = self.probes.near(id.home, place.steps);
        let (home_set, set) = (self.set::<W>(id.home), self.set::<W>(at));
        let reach = self.farthest::<W>(id.home, home.reach()).max(place.steps);
        let write = |locked: &mut SetGuard<'_, W>| {
            locked.write_state(place.slot, words);
            locked.write_tag(place.slot, tag(id.fingerprint, place.steps));
        };
        if place.steps == 0 {
            if place.header != home {
                return false;
            }
            let Some(mut locked) = set.lock(home) else {
                return false;
            };
            write(&mut locked);
            locked.set_probe_len(reach);
            return true;
        }
        let mut homes;
        let mut places;
        if id.home < at {
            homes = home_set.lock(home);
            places = homes.as_ref().and_then(|_| set.lock(place.header));
        } else {
            places = set.lock(place.header);
            homes = places.as_ref().and_then(|_| home_set.lock(home));
        }
        let (Some(homes), Some(places)) = (&mut homes, &mut places) else {
            return false;
        };
        write(places);
        homes.set_probe_len(reach);
        true
    }

    /// How far from its home the farthest key of a home lives, at most `reach`. Only the holder of
    /// the home's lock adds to it, so an answer from an unchanged home is never too small.
    fn farthest<const W: usize>(&self, home: usize, reach: usize) -> usize {
        (1..=reach)
            .rev()
            .find(|steps| {
                let snapshot = self.set::<W>(self.probes.near(home, *steps)).snapshot();
                snapshot
                    .tags
                    .iter()
                    .any(|tag| *tag != 0 && probe_of_tag(*tag) == *steps)
            })
            .unwrap_or(0)
    }
}

impl TargetSlot {
    fn new<const W: usize>(steps: usize, slot: usize, snapshot: &Snapshot<W>) -> Self {
        Self {
            steps,
            slot,
            header: snapshot.header,
            tag: snapshot.tags[slot],
            outside: (snapshot.tags[slot] != 0 && is_spilled(&snapshot.states[slot]))
                .then(|| index(snapshot.states[slot][0])),
            evicts: None,
        }
    }
}
