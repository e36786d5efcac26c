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
//! An entry exists while requests of its key are in flight. If none is in flight, none waits. So there are never more
//! entries than requests.

use std::{
    fmt,
    hash::{BuildHasher, Hash},
    task::Waker,
};

use super::line::{End, QueuedPermit};
use super::request::{KeyUsage, PermitRequest, part_of};
use super::shard::{KeyPermits, PermitShard};
use crate::store::local::Seeded;
use crate::sync::{AtomicU64, CachePadded, Mutex, MutexGuard, Ordering, lock};

/// Loom models need the same lock in each run, whatever the seed.
const SHARDS: usize = if cfg!(all(test, tower_throttle_loom)) {
    1
} else {
    32
};

pub(super) struct PermitTable {
    shards: Box<[CachePadded<Mutex<PermitShard>>]>,
    hasher: Seeded,
    /// Read while the shard is locked: a request that joins a line with an old limit has to be found by
    /// the thread that changes it.
    limit: AtomicU64,
    pub(super) waiting: AtomicU64,
}

/// What a request gets that may wait.
#[derive(Debug)]
pub(crate) enum Joined {
    /// A permit.
    Taken(KeyUsage),
    /// A place in line.
    Waits(QueuedPermit, KeyUsage),
    /// The line is full.
    Full(KeyUsage),
}

impl PermitTable {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            hasher: Seeded::default(),
            limit: AtomicU64::new(limit),
            waiting: AtomicU64::new(0),
        }
    }

    /// Identifies a key. Keys with the same 64-bit hash share their permits.
    #[inline]
    pub(super) fn key_id<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        self.hasher.hash_one(key)
    }

    /// The limit of each key.
    #[inline]
    pub(super) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// The number of waiting requests of all keys.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn lock_shard(&self, id: u64) -> MutexGuard<'_, PermitShard> {
        // Other bits than those by which the map finds the entry.
        let shard = (id >> 32) % self.shards.len() as u64;
        lock(&self.shards[usize::try_from(shard).unwrap_or_default()].0)
    }

    /// Calls `take` with the entry of a key that is used now, and the part of the limit that the request may use.
    #[inline]
    fn with_limit<T>(
        &self,
        request: PermitRequest,
        take: impl FnOnce(&mut KeyPermits, u64) -> T,
    ) -> T {
        let mut shard = self.lock_shard(request.id);
        let limit = self.limit();
        let entry = shard.entries.entry(request.id).or_default();
        take(entry, part_of(limit, request.reserved))
    }

    /// Takes a permit if there is room and no request of the key goes before it. Returns what is taken
    /// then, or what leaves no room.
    #[inline]
    pub(super) fn try_take(&self, request: PermitRequest) -> Result<KeyUsage, KeyUsage> {
        self.with_limit(request, |entry, limit| {
            let usage = |in_flight| KeyUsage { in_flight, limit };
            entry.try_take(request, limit).map(usage).map_err(usage)
        })
    }

    /// Takes a permit even if there is no room.
    pub(super) fn take_anyway(&self, request: PermitRequest) -> KeyUsage {
        let (usage, keeper) = self.with_limit(request, |entry, limit| {
            entry.in_flight = entry.in_flight.saturating_add(request.units);
            let usage = KeyUsage {
                in_flight: entry.in_flight.saturating_add(entry.others()),
                limit,
            };
            (usage, entry.keeper())
        });
        keeper.into_iter().for_each(Waker::wake);
        usage
    }

    /// Takes a permit, or joins the line. If `most` requests of the key wait, takes the place of the
    /// last one, if the request goes before it. `lease` makes sure of the lease of a fleet.
    pub(super) fn take_or_join(
        &self,
        request: PermitRequest,
        most: u32,
        lease: impl FnOnce(&mut KeyPermits),
    ) -> Joined {
        let mut wakers = Vec::new();
        let mut shard = self.lock_shard(request.id);
        let limit = self.limit();
        let entry = shard.entries.entry(request.id).or_default();
        lease(entry);
        let others = entry.others();
        let usage = |in_flight: u64| KeyUsage {
            in_flight: in_flight.saturating_add(others),
            limit: part_of(limit, request.reserved),
        };
        let part = entry.part(limit, request.reserved);
        let in_flight = match entry.try_take(request, part) {
            Ok(in_flight) => return Joined::Taken(usage(in_flight)),
            Err(in_flight) => in_flight,
        };
        let line = entry.line.get_or_insert_default();
        if line.len() >= most as usize {
            let last = line.last_behind(request.place());
            let Some(last) = last.and_then(|last| line.remove(last)) else {
                return Joined::Full(usage(in_flight));
            };
            wakers.extend(last.end(End::Displaced));
        } else {
            self.waiting.fetch_add(1, Ordering::Relaxed);
        }
        let queued = line.push(request.place(), request.units, request.reserved);
        wakers.extend(entry.keeper());
        drop(shard);
        wakers.into_iter().for_each(Waker::wake);
        Joined::Waits(queued, usage(in_flight))
    }

    /// A request leaves the line. Returns true if it was granted a permit before, which is then the caller's.
    pub(super) fn leave(&self, request: PermitRequest, queued: &QueuedPermit) -> bool {
        let mut wakers = Vec::new();
        let mut shard = self.lock_shard(request.id);
        let entry = shard.entries.get_mut(&request.id);
        let left = entry.and_then(|entry| {
            let left = entry.line.as_mut()?.remove(queued.place)?;
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            // Those behind it may need less room.
            self.grant(entry, &mut wakers);
            wakers.extend(entry.keeper());
            Some(left)
        });
        drop(shard);
        wakers.into_iter().for_each(Waker::wake);
        left.is_none() && queued.ended() == Some(End::Granted)
    }

    /// A request that had a permit has ended.
    #[inline]
    pub(super) fn release(&self, request: PermitRequest) {
        let mut shard = self.lock_shard(request.id);
        let Some(entry) = shard.entries.get_mut(&request.id) else {
            return;
        };
        entry.in_flight = entry.in_flight.saturating_sub(request.units);
        let mut wakers = Vec::new();
        self.grant(entry, &mut wakers);
        wakers.extend(entry.keeper());
        shard.tidy(request.id);
        drop(shard);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Grants permits to the first waiters of a key.
    pub(super) fn grant(&self, entry: &mut KeyPermits, wakers: &mut Vec<Waker>) {
        let limit = self.limit();
        let first = |entry: &KeyPermits| {
            let (place, waiter) = entry.line.as_ref()?.first()?;
            Some((place, waiter.units, waiter.own))
        };
        while let Some((place, units, reserved)) = first(entry) {
            if !entry.has_room(units, entry.part(limit, reserved)) {
                break;
            }
            entry.in_flight += units;
            wakers.extend(entry.end(Some(place), End::Granted));
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
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
            let mut shard = lock(&shard.0);
            for entry in shard.entries.values_mut() {
                self.grant(entry, &mut wakers);
                wakers.extend(entry.keeper());
            }
            drop(shard);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// The units of a key in flight here, and those of other machines.
    pub(super) fn look(&self, id: u64) -> (u64, u64) {
        let shard = self.lock_shard(id);
        let entry = shard.entries.get(&id);
        entry.map_or((0, 0), |entry| (entry.in_flight, entry.others()))
    }

    /// What a request sees of the limit.
    pub(super) fn usage(&self, request: PermitRequest) -> KeyUsage {
        let (in_flight, others) = self.look(request.id);
        KeyUsage {
            in_flight: in_flight.saturating_add(others),
            limit: part_of(self.limit(), request.reserved),
        }
    }

    /// The number of keys with requests in flight.
    pub(super) fn keys(&self) -> usize {
        self.sum(|shard| {
            let entries = shard.entries.values();
            entries
                .filter(|entry| !entry.is_kept() || !entry.is_idle())
                .count()
        })
    }

    /// The units of all keys in flight, and the largest part of its limit that one key has, in percent.
    pub(super) fn fullness(&self) -> (u64, u64) {
        let (mut in_flight, mut percent) = (0_u64, 0);
        for shard in &self.shards {
            for entry in lock(&shard.0).entries.values() {
                in_flight = in_flight.saturating_add(entry.in_flight);
                let part = entry.in_flight.saturating_mul(100) / self.limit().max(1);
                percent = percent.max(part);
            }
        }
        (in_flight, percent)
    }

    fn sum(&self, count: impl Fn(&PermitShard) -> usize) -> usize {
        self.shards.iter().map(|shard| count(&lock(&shard.0))).sum()
    }
}

/// Manual impl: keys are not shown, not even their hashes.
impl fmt::Debug for PermitTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermitTable")
            .field("limit", &self.limit())
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}
