//! How many requests of each key are in flight, and the lines of those that wait for a permit.
//!
//! # Protocol
//! The table is in shards, each behind a lock. All that concerns a key happens under the lock of its
//! shard, in one step: a request takes a permit only if there is room and no waiter goes before it, a
//! release gives what it frees to the first waiters, and a waiter that leaves passes on what it was
//! given. So no waiter at the front waits while there is room for it. Wakers are called and
//! dropped after the lock is released.
//!
//! # Memory
//! An entry exists while requests of its key are in flight, or do not know yet that they were displaced
//! in the line. If none is in flight, none waits. So there are never more entries than requests. Limits
//! of single keys are kept elsewhere.

use std::{
    fmt,
    hash::{BuildHasher, Hash},
    mem,
    task::{Poll, Waker},
};

use super::adaptive::Window;
use super::claim::{Claim, Usage};
use super::controller::Run;
use super::entries::Entries;
use super::key_limits::KeyLimits;
use super::line::{End, Line};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::store::local::Seeded;
use crate::sync::{AtomicU64, CachePadded, Mutex, MutexGuard, Ordering, lock};

/// A power of two. Loom models need the same lock in each run, whatever the seed.
const SHARDS: u64 = if cfg!(all(test, tower_throttle_loom)) {
    1
} else {
    32
};

pub(super) struct Table {
    shards: Box<[CachePadded<Mutex<Entries<Entry>>>]>,
    hasher: Seeded,
    /// Read while the shard is locked: a request that joins a line with an old limit has to be found by
    /// the thread that changes it.
    limit: AtomicU64,
    /// If each key has its own limit. Then `limit` is that of a new key.
    pub(super) key_limits: Option<KeyLimits>,
    waiting: AtomicU64,
}

/// The requests of one key.
struct Entry {
    /// The units of all requests in flight, with those of waiters that were granted a permit and do
    /// not know it yet.
    in_flight: u64,
    /// `None` until a request waits.
    line: Option<Box<Line>>,
}

/// What a request gets that may wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// A permit.
    Taken(Usage),
    /// The number of its node.
    Waits(u32, Usage),
    /// The line is full.
    Full(Usage),
}

impl Table {
    pub(super) fn new(limit: u64) -> Self {
        Self::with(limit, None)
    }

    /// A table in which each key has its own limit.
    pub(super) fn per_key(limits: KeyLimits) -> Self {
        Self::with(limits.start(), Some(limits))
    }

    fn with(limit: u64, key_limits: Option<KeyLimits>) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            hasher: Seeded::default(),
            limit: AtomicU64::new(limit),
            key_limits,
            waiting: AtomicU64::new(0),
        }
    }

    /// Identifies a key. Keys with the same 64-bit hash share their permits.
    #[inline]
    pub(super) fn key_id<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        self.hasher.hash_one(key)
    }

    /// The limit of all keys, or of a new key if each has its own.
    #[inline]
    pub(super) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// The limit of a key now.
    pub(super) fn limit_of(&self, id: u64) -> u64 {
        match &self.key_limits {
            Some(limits) => limits.limit_of(id, MonotonicClock.now(), self.is_in_flight()),
            None => self.limit(),
        }
    }

    /// The number of waiting requests of all keys.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    #[inline]
    fn lock_shard(&self, id: u64) -> MutexGuard<'_, Entries<Entry>> {
        // Other bits than those by which the map finds the entry.
        let shard = usize::try_from((id >> 32) % SHARDS).unwrap_or_default();
        lock(&self.shards[shard].0)
    }

    /// Calls `take` with the locked shard of a key and the key's limit.
    #[inline]
    fn with_limit<T>(
        &self,
        id: u64,
        take: impl FnOnce(MutexGuard<'_, Entries<Entry>>, u64) -> T,
    ) -> T {
        let Some(limits) = &self.key_limits else {
            let shard = self.lock_shard(id);
            let limit = self.limit();
            return take(shard, limit);
        };
        let now = MonotonicClock.now();
        // Held until the request was admitted with this limit.
        let mut keys = limits.lock(id);
        let limit = limits.limit(&mut keys, id, now, self.is_in_flight());
        let mut wakers = Vec::new();
        let mut shard = self.lock_shard(id);
        // The key may have begun anew: then those that wait have room before this request.
        self.renew(&mut shard, id, limit, &mut wakers);
        let taken = take(shard, limit);
        drop(keys);
        wakers.into_iter().for_each(Waker::wake);
        taken
    }

    /// Whether requests of a key are in flight.
    fn is_in_flight(&self) -> impl Fn(u64) -> bool {
        |id| self.lock_shard(id).get_mut(id).is_some()
    }

    /// Gives the line of a key the limit of the key, if that is another one, and grants permits.
    fn renew(&self, shard: &mut Entries<Entry>, id: u64, limit: u64, wakers: &mut Vec<Waker>) {
        let Some(entry) = shard.get_mut(id) else {
            return;
        };
        if let Some(line) = entry.line.as_mut().filter(|line| line.limit != limit) {
            line.limit = limit;
            self.grant(entry, wakers);
        }
    }

    /// Takes a permit if there is room and no request of the key goes before it. Returns what is taken
    /// then, or what leaves no room.
    #[inline]
    pub(super) fn try_take(&self, claim: Claim) -> Result<Usage, Usage> {
        self.with_limit(claim.id, |mut shard, limit| {
            let limit = claim.priority.part_of(limit);
            let taken = match shard.get_mut(claim.id) {
                Some(entry) => entry.try_take(claim, limit),
                None => Ok(shard.insert(claim.id, Entry::new(claim.units)).in_flight),
            };
            let usage = |in_flight| Usage { in_flight, limit };
            taken.map(usage).map_err(usage)
        })
    }

    /// Takes a permit even if there is no room.
    pub(super) fn take_anyway(&self, claim: Claim) -> Usage {
        self.with_limit(claim.id, |mut shard, limit| {
            let in_flight = match shard.get_mut(claim.id) {
                Some(entry) => {
                    entry.in_flight = entry.in_flight.saturating_add(claim.units);
                    entry.in_flight
                }
                None => shard.insert(claim.id, Entry::new(claim.units)).in_flight,
            };
            let limit = claim.priority.part_of(limit);
            Usage { in_flight, limit }
        })
    }

    /// Takes a permit, or joins the line. If `most` requests of the key wait, takes the place of the
    /// newest of the lowest priority, if that is lower.
    pub(super) fn take_or_join(&self, claim: Claim, most: u32) -> Joined {
        let (joined, woken) = self.with_limit(claim.id, |mut shard, whole_limit| {
            let limit = claim.priority.part_of(whole_limit);
            let usage = |in_flight| Usage { in_flight, limit };
            let Some(entry) = shard.get_mut(claim.id) else {
                let entry = shard.insert(claim.id, Entry::new(claim.units));
                return (Joined::Taken(usage(entry.in_flight)), None);
            };
            let in_flight = entry.in_flight;
            if let Ok(in_flight) = entry.try_take(claim, limit) {
                return (Joined::Taken(usage(in_flight)), None);
            }
            let line = entry.line.get_or_insert_default();
            line.limit = whole_limit;
            let mut woken = None;
            if line.len() >= most as usize {
                let (has_displaced, waker) = line.displace_last(claim.priority);
                if !has_displaced {
                    return (Joined::Full(usage(in_flight)), None);
                }
                woken = waker;
            } else {
                self.waiting.fetch_add(1, Ordering::Relaxed);
            }
            (Joined::Waits(line.push(claim), usage(in_flight)), woken)
        });
        if let Some(waker) = woken {
            waker.wake();
        }
        joined
    }

    /// Ready once the wait of the waiter `at` has ended. It is then no longer in the table.
    pub(super) fn poll_waiter(&self, claim: Claim, at: u32, waker: &Waker) -> Poll<End> {
        let mut shard = self.lock_shard(claim.id);
        let line = shard
            .get_mut(claim.id)
            .and_then(|entry| entry.line.as_mut());
        let Some(line) = line else {
            return Poll::Pending;
        };
        let (polled, stale) = line.poll(claim.priority, at, waker);
        if polled == Poll::Ready(End::Displaced) {
            Self::tidy(&mut shard, claim.id);
        }
        drop(shard);
        drop(stale);
        polled
    }

    /// Removes the waiter `at`. Returns true if it was granted a permit before, which is then the
    /// caller's.
    pub(super) fn leave(&self, claim: Claim, at: u32) -> bool {
        let mut wakers = Vec::new();
        let mut shard = self.lock_shard(claim.id);
        let Some(entry) = shard.get_mut(claim.id) else {
            return false;
        };
        let line = entry.line.as_mut();
        let Some((end, stale)) = line.and_then(|line| line.remove(claim.priority, at)) else {
            return false;
        };
        if end.is_none() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            // Those behind it may need less room.
            self.grant(entry, &mut wakers);
        } else if end == Some(End::Displaced) {
            Self::tidy(&mut shard, claim.id);
        }
        drop(shard);
        drop(stale);
        wakers.into_iter().for_each(Waker::wake);
        end == Some(End::Granted)
    }

    /// Ends a request that had a permit.
    #[inline]
    pub(super) fn release(&self, claim: Claim) {
        let mut shard = self.lock_shard(claim.id);
        let Some(entry) = shard.get_mut(claim.id) else {
            return;
        };
        entry.in_flight = entry.in_flight.saturating_sub(claim.units);
        if entry.line.is_some() {
            self.release_to_line(shard, claim.id);
        } else if entry.in_flight == 0 {
            shard.remove(claim.id);
        }
    }

    #[cold]
    #[inline(never)]
    fn release_to_line(&self, mut shard: MutexGuard<'_, Entries<Entry>>, id: u64) {
        let mut wakers = Vec::new();
        if let Some(entry) = shard.get_mut(id) {
            self.grant(entry, &mut wakers);
            Self::tidy(&mut shard, id);
        }
        drop(shard);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Removes the entry of a key of which nothing is left. The nodes of displaced waiters are: a new
    /// line would use their numbers again.
    fn tidy(shard: &mut Entries<Entry>, id: u64) {
        let is_done = |entry: &mut Entry| {
            let line = entry.line.as_ref();
            entry.in_flight == 0 && line.is_none_or(|line| line.is_tidy())
        };
        if shard.get_mut(id).is_some_and(is_done) {
            shard.remove(id);
        }
    }

    /// Grants permits to the first waiters of a key.
    fn grant(&self, entry: &mut Entry, wakers: &mut Vec<Waker>) {
        let Some(mut line) = mem::take(&mut entry.line) else {
            return;
        };
        let limit = match &self.key_limits {
            Some(_) => line.limit,
            None => self.limit(),
        };
        while let Some((priority, units)) = line.first() {
            if !entry.has_room(units, priority.part_of(limit)) {
                break;
            }
            entry.in_flight += units;
            wakers.extend(line.grant_first());
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        entry.line = Some(line);
    }

    /// Changes the limit, and grants permits to the waiters for which there is room now. Requests in
    /// flight stay.
    pub(super) fn set_limit(&self, limit: u64) {
        self.store_limit(limit);
        self.grant_all();
    }

    /// The first half of [`set_limit`](Self::set_limit). Calls no waker.
    pub(super) fn store_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Grants permits to the waiters for which there is room.
    pub(super) fn grant_all(&self) {
        // Also if none waits yet: a request may be about to wait because it has read the old limit.
        for shard in &self.shards {
            let mut wakers = Vec::new();
            let mut entries = lock(&shard.0);
            for entry in entries.values_mut() {
                self.grant(entry, &mut wakers);
            }
            drop(entries);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Adds a sample of a key with a limit of its own, and grants permits if that has become higher.
    pub(super) fn record(
        &self,
        limits: &KeyLimits,
        id: u64,
        now: Tick,
        record: impl FnOnce(&mut dyn Run) -> Option<Window>,
    ) {
        let mut keys = limits.lock(id);
        let ended = limits.record(&mut keys, id, now, self.is_in_flight(), record);
        drop(keys);
        let Some(window) = ended else {
            return;
        };
        let window = window.with_load((limits.load)());
        let mut keys = limits.lock(id);
        let Some(limit) = keys.next(id, &window) else {
            return;
        };
        let mut wakers = Vec::new();
        let mut shard = self.lock_shard(id);
        self.renew(&mut shard, id, limit, &mut wakers);
        drop(shard);
        drop(keys);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The units of `id` in flight.
    pub(super) fn in_flight(&self, id: u64) -> u64 {
        self.lock_shard(id)
            .get_mut(id)
            .map_or(0, |entry| entry.in_flight)
    }

    /// What a request sees of the limit.
    pub(super) fn usage(&self, claim: Claim) -> Usage {
        Usage {
            in_flight: self.in_flight(claim.id),
            limit: claim.priority.part_of(self.limit_of(claim.id)),
        }
    }

    /// The number of keys with requests in flight.
    pub(super) fn keys(&self) -> usize {
        self.shards.iter().map(|shard| lock(&shard.0).len()).sum()
    }
}

impl Entry {
    const fn new(units: u64) -> Self {
        Self {
            in_flight: units,
            line: None,
        }
    }

    /// `limit` is the part for the priority of the request.
    fn try_take(&mut self, claim: Claim, limit: u64) -> Result<u64, u64> {
        let line = self.line.as_ref();
        if line.is_some_and(|line| line.is_ahead_of(claim.priority))
            || !self.has_room(claim.units, limit)
        {
            return Err(self.in_flight);
        }
        self.in_flight += claim.units;
        Ok(self.in_flight)
    }

    /// A request of more units than the limit has room when it is alone, or it would never go on after
    /// the limit has become lower.
    const fn has_room(&self, units: u64, limit: u64) -> bool {
        self.in_flight == 0 || self.in_flight.saturating_add(units) <= limit
    }
}

/// Manual impl: keys are not shown, not even their hashes.
impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("limit", &self.limit())
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}
