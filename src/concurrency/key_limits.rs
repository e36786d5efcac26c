//! Limits that adapt, one per key.
//!
//! # Memory
//! The keys are in shards, each of which keeps the keys that were used last. A key that was not used
//! for long, or that was displaced by others, begins anew when it is used again. Keys about which
//! nothing was learned are displaced first, so many new keys do not displace those in use. Keys with
//! requests in flight are displaced last, and are not forgotten.
//!
//! # Locks
//! The shard of a key here is locked before its shard of the table. So the limit of a key cannot change
//! between the moment it is read and the moment a request is admitted with it. `is_in_flight` locks the
//! shard of the table for a moment.

use std::{
    cmp::Reverse,
    collections::{HashMap, hash_map::Entry},
    hash::BuildHasherDefault,
    time::Duration,
};

use super::adaptive::Window;
use super::controller::{Factory, Load, Run};
use crate::clock::Tick;
use crate::queue::PassThroughHasher;
use crate::sync::{Mutex, MutexGuard, lock};

/// The fewest keys of a shard, unless there are fewer. A shard has less than twice as many, so that the
/// key used least recently is found soon.
const PER_SHARD: usize = 64;

pub(super) struct KeyLimits {
    shards: Box<[Mutex<Shard>]>,
    settings: KeySettings,
    make: Factory,
    /// The limit of a key that begins.
    start: u64,
    pub(super) load: Load,
}

/// How many keys are kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeySettings {
    pub(super) capacity: usize,
    pub(super) forget: Duration,
}

impl Default for KeySettings {
    fn default() -> Self {
        Self {
            capacity: 1_024,
            forget: Duration::from_secs(600),
        }
    }
}

/// The keys of a shard.
#[derive(Default)]
pub(super) struct Shard {
    keys: HashMap<u64, KeyLimit, BuildHasherDefault<PassThroughHasher>>,
    /// Counts all uses, to find the key that was used least recently.
    uses: u64,
}

struct KeyLimit {
    limit: u64,
    run: Box<dyn Run>,
    used_at: Tick,
    /// The number of its last use.
    use_number: u64,
    /// A window has ended.
    has_learned: bool,
}

impl KeyLimits {
    pub(super) fn new((make, start, load): (Factory, u64, Load), settings: KeySettings) -> Self {
        let shards = (settings.capacity / PER_SHARD).max(1);
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            settings,
            make,
            start,
            load,
        }
    }

    pub(super) const fn start(&self) -> u64 {
        self.start
    }

    pub(super) fn lock(&self, id: u64) -> MutexGuard<'_, Shard> {
        // Not the bits by which the map finds the key.
        let shard = (id >> 32) % self.shards.len() as u64;
        lock(&self.shards[usize::try_from(shard).unwrap_or_default()])
    }

    /// The limit of a key that is used now.
    pub(super) fn limit(
        &self,
        shard: &mut Shard,
        id: u64,
        now: Tick,
        is_in_flight: impl Fn(u64) -> bool,
    ) -> u64 {
        self.used(shard, id, now, is_in_flight).limit
    }

    /// The limit of a key, without using it.
    pub(super) fn limit_of(&self, id: u64, now: Tick, is_in_flight: impl Fn(u64) -> bool) -> u64 {
        let shard = self.lock(id);
        let known = shard
            .keys
            .get(&id)
            .filter(|key| !self.is_forgotten(key, now) || is_in_flight(id));
        known.map_or(self.start, |key| key.limit)
    }

    /// Adds a sample of a key. Returns the window if the request ended it.
    pub(super) fn record(
        &self,
        shard: &mut Shard,
        id: u64,
        now: Tick,
        is_in_flight: impl Fn(u64) -> bool,
        record: impl FnOnce(&mut dyn Run) -> Option<Window>,
    ) -> Option<Window> {
        record(&mut *self.used(shard, id, now, is_in_flight).run)
    }

    /// The number of keys that are kept.
    pub(super) fn keys(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).keys.len()).sum()
    }

    fn is_forgotten(&self, key: &KeyLimit, now: Tick) -> bool {
        now.since(key.used_at) >= self.settings.forget
    }

    /// The key, made anew if it is not known or was forgotten.
    fn used<'a>(
        &self,
        shard: &'a mut Shard,
        id: u64,
        now: Tick,
        is_in_flight: impl Fn(u64) -> bool,
    ) -> &'a mut KeyLimit {
        shard.uses += 1;
        let most = self.settings.capacity / self.shards.len();
        if shard.keys.len() >= most && !shard.keys.contains_key(&id) {
            shard.evict(|key| self.is_forgotten(key, now), &is_in_flight);
        }
        let fresh = || KeyLimit {
            limit: self.start,
            run: (self.make)(),
            used_at: now,
            use_number: 0,
            has_learned: false,
        };
        let key = match shard.keys.entry(id) {
            Entry::Occupied(known) => {
                let known = known.into_mut();
                if self.is_forgotten(known, now) && !is_in_flight(id) {
                    *known = fresh();
                }
                known
            }
            Entry::Vacant(place) => place.insert(fresh()),
        };
        key.used_at = key.used_at.max(now);
        key.use_number = shard.uses;
        key
    }
}

impl Shard {
    /// The limit of a key after a window. `None` if the key was displaced meanwhile.
    pub(super) fn next(&mut self, id: u64, window: &Window) -> Option<u64> {
        let key = self.keys.get_mut(&id)?;
        key.has_learned |= window.samples.saturating_add(window.dropped) > 0;
        key.limit = key.run.next(window);
        Some(key.limit)
    }

    /// Removes a key: one that is to be forgotten, or else one about which nothing was learned, or else
    /// any; of these, the one that was used least recently. One with requests in flight only if all
    /// have some.
    fn evict(
        &mut self,
        is_forgotten: impl Fn(&KeyLimit) -> bool,
        is_in_flight: impl Fn(u64) -> bool,
    ) {
        let rank = |key: &KeyLimit| (Reverse(is_forgotten(key)), key.has_learned, key.use_number);
        let mut ranked: Vec<_> = self.keys.iter().map(|(id, key)| (rank(key), *id)).collect();
        ranked.sort_unstable();
        let idle = ranked.iter().find(|(_, id)| !is_in_flight(*id));
        if let Some((_, id)) = idle.or_else(|| ranked.first()) {
            self.keys.remove(id);
        }
    }
}
