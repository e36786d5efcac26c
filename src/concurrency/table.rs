//! How many requests of each key are in flight.
//!
//! # Protocol
//! The table is in shards, each behind a lock. A request that finds no room waits in the line of its key, where
//! only the first one asks again. It is counted as waiting before it asks, and who releases a permit looks for those
//! that wait afterwards: so none waits while there is room for it. Wakers are called and dropped after the lock is
//! released.
//!
//! # Memory
//! An entry exists while requests of its key are in flight, or this machine of a fleet has a lease.

use std::{
    fmt,
    hash::{BuildHasher, Hash},
    task::Waker,
};

use super::request::{KeyUsage, PermitRequest, part_of};
use super::shard::{KeyPermits, PermitShard};
use crate::store::local::Seeded;
use crate::sync::{AtomicU64, CachePadded, Mutex, MutexGuard, Ordering, lock};

/// Loom models need the same lock in each run, whatever the seed.
const SHARDS: usize = if cfg!(tower_throttle_loom) { 1 } else { 32 };

pub(super) struct PermitTable {
    shards: Box<[CachePadded<Mutex<PermitShard>>]>,
    hasher: Seeded,
    /// Read while the shard is locked: a request that joins a line with an old limit has to be found by
    /// the thread that changes it.
    limit: AtomicU64,
    /// None is granted without a lease.
    is_fleet: bool,
}

impl PermitTable {
    pub(super) fn new(limit: u64, is_fleet: bool) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            hasher: Seeded::default(),
            limit: AtomicU64::new(limit),
            is_fleet,
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

    #[inline]
    pub(super) fn lock_shard(&self, id: u64) -> MutexGuard<'_, PermitShard> {
        // Other bits than those by which the map finds the entry.
        let shard = (id >> 32) % self.shards.len() as u64;
        lock(&self.shards[usize::try_from(shard).unwrap_or_default()].0)
    }

    /// Takes a permit if there is room. Returns what is taken then, or what leaves no room.
    ///
    /// A request of more units than the limit has room when it is alone, or it would never go on after the limit
    /// has become lower. In a fleet others may be in flight elsewhere.
    #[inline]
    pub(super) fn take(&self, request: PermitRequest) -> Result<KeyUsage, KeyUsage> {
        let mut shard = self.lock_shard(request.id);
        let limit = part_of(self.limit(), request.reserved);
        let entry = shard.entries.entry(request.id).or_default();
        let part = match &entry.lease {
            Some(lease) => lease.part(limit),
            None if self.is_fleet => 0,
            None if entry.in_flight == 0 => u64::MAX,
            None => limit,
        };
        let after = entry.in_flight.saturating_add(request.units);
        if after <= part {
            entry.in_flight = after;
            return Ok(entry.usage(limit));
        }
        let usage = entry.usage(limit);
        shard.tidy(request.id);
        Err(usage)
    }

    /// Takes a permit even if there is no room.
    pub(super) fn take_anyway(&self, request: PermitRequest) -> KeyUsage {
        let mut shard = self.lock_shard(request.id);
        let entry = shard.entries.entry(request.id).or_default();
        entry.in_flight = entry.in_flight.saturating_add(request.units);
        let usage = entry.usage(part_of(self.limit(), request.reserved));
        let keeper = entry.keeper();
        drop(shard);
        keeper.into_iter().for_each(Waker::wake);
        usage
    }

    /// A request that had a permit has ended. Returns what keeps the lease, which is to be woken.
    #[inline]
    pub(super) fn release(&self, request: PermitRequest) -> Option<Waker> {
        let mut shard = self.lock_shard(request.id);
        let entry = shard.entries.get_mut(&request.id)?;
        entry.in_flight = entry.in_flight.saturating_sub(request.units);
        let keeper = entry.keeper();
        shard.tidy(request.id);
        keeper
    }

    /// Wakes what keeps the lease of a key: fewer units or others are wanted.
    pub(super) fn wake_keeper(&self, id: u64) {
        let entry = |shard: &PermitShard| shard.entries.get(&id)?.keeper();
        let keeper = entry(&self.lock_shard(id));
        keeper.into_iter().for_each(Waker::wake);
    }

    /// Wakes what keeps the leases of all keys.
    pub(super) fn wake_keepers(&self) {
        for shard in &self.shards {
            let entries = |shard: &PermitShard| -> Vec<_> {
                shard
                    .entries
                    .values()
                    .filter_map(KeyPermits::keeper)
                    .collect()
            };
            let keepers = entries(&lock(&shard.0));
            keepers.into_iter().for_each(Waker::wake);
        }
    }

    /// Changes the limit. Those that wait are to be told.
    pub(super) fn store_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
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
        let used = |shard: &PermitShard| {
            let entries = shard.entries.values();
            entries.filter(|entry| entry.in_flight > 0).count()
        };
        let shards = self.shards.iter();
        shards.map(|shard| used(&lock(&shard.0))).sum()
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
}

/// Manual impl: keys are not shown, not even their hashes.
impl fmt::Debug for PermitTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermitTable")
            .field("limit", &self.limit())
            .finish_non_exhaustive()
    }
}
