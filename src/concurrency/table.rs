//! How many requests of each key are in flight, and the lines of those that wait for a permit.
//!
//! # Protocol
//! The table is in shards, each behind a lock. All that concerns a key happens under the lock of its
//! shard, in one step: a request takes a permit only if there is room and no line, a release gives
//! what it frees to the first waiters, and a waiter that leaves passes on what it was given. So no
//! waiter waits while there is room for it, and no request overtakes the line. Wakers are called and
//! dropped after the lock is released.
//!
//! # Memory
//! An entry exists while requests of its key are in flight. If none is in flight, none waits. So there
//! are never more entries than requests in flight.

use std::{
    fmt,
    hash::{BuildHasher, Hash},
    mem,
    task::{Poll, Waker},
};

use super::entries::Entries;
use crate::queue::List;
use crate::store::local::Seeded;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};

/// A power of two. Loom models need the same lock in each run, whatever the seed.
const SHARDS: u64 = if cfg!(all(test, tower_throttle_loom)) {
    1
} else {
    32
};

pub(super) struct Table {
    shards: Box<[Shard]>,
    hasher: Seeded,
    /// Read while the shard is locked: a request that joins a line with an old limit has to be found by
    /// the thread that changes it.
    limit: AtomicU64,
    waiting: AtomicU64,
}

/// Aligned to two cache lines, since processors fetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Shard(Mutex<Entries<Entry>>);

/// The requests of one key.
struct Entry {
    /// The units of all requests in flight, with those of waiters that were granted a permit and do
    /// not know it yet.
    in_flight: u64,
    /// `None` until a request waits.
    line: Option<Box<List<Waiter>>>,
}

/// A request that waits. Its node is linked until the permit is granted.
struct Waiter {
    units: u64,
    /// `None` until the first poll, and once it was woken.
    waker: Option<Waker>,
    granted: bool,
}

/// What a request gets that may wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// A permit. So many units are in flight now.
    Taken(u64),
    /// The number of its node.
    Waits(u32),
    /// The line is full.
    Full(u64),
}

impl Table {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
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

    #[inline]
    pub(super) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
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

    /// Takes a permit if there is room and no request of the key waits. Returns how many units are in
    /// flight then, or the number in flight that leaves no room.
    #[inline]
    pub(super) fn try_take(&self, id: u64, units: u64) -> Result<u64, u64> {
        let mut shard = self.lock_shard(id);
        match shard.get_mut(id) {
            Some(entry) => entry.try_take(units, self.limit()),
            None => Ok(shard.insert(id, Entry::new(units)).in_flight),
        }
    }

    /// Takes a permit even if there is no room. Returns how many units are in flight then.
    pub(super) fn take_anyway(&self, id: u64, units: u64) -> u64 {
        let mut shard = self.lock_shard(id);
        match shard.get_mut(id) {
            Some(entry) => {
                entry.in_flight = entry.in_flight.saturating_add(units);
                entry.in_flight
            }
            None => shard.insert(id, Entry::new(units)).in_flight,
        }
    }

    /// Takes a permit, or joins the line if fewer than `most` requests of the key wait.
    pub(super) fn take_or_join(&self, id: u64, units: u64, most: u32) -> Joined {
        let mut shard = self.lock_shard(id);
        let Some(entry) = shard.get_mut(id) else {
            return Joined::Taken(shard.insert(id, Entry::new(units)).in_flight);
        };
        if let Ok(in_flight) = entry.try_take(units, self.limit()) {
            return Joined::Taken(in_flight);
        }
        let line = entry.line.get_or_insert_default();
        if line.len() >= most as usize {
            return Joined::Full(entry.in_flight);
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Joined::Waits(line.push_back(Waiter {
            units,
            waker: None,
            granted: false,
        }))
    }

    /// Ready once the waiter `at` was granted a permit. It is then no longer in the table.
    pub(super) fn poll_waiter(&self, id: u64, at: u32, waker: &Waker) -> Poll<()> {
        let mut stale = None;
        let mut shard = self.lock_shard(id);
        let Some(line) = shard.get_mut(id).and_then(|entry| entry.line.as_mut()) else {
            return Poll::Pending;
        };
        let Some(waiter) = line.get_mut(at) else {
            return Poll::Pending;
        };
        if waiter.granted {
            line.take(at);
            return Poll::Ready(());
        }
        if !waiter
            .waker
            .as_ref()
            .is_some_and(|old| old.will_wake(waker))
        {
            stale = waiter.waker.replace(waker.clone());
        }
        drop(shard);
        drop(stale);
        Poll::Pending
    }

    /// Removes the waiter `at`. Returns true if it was granted a permit before, which is then the
    /// caller's.
    pub(super) fn leave(&self, id: u64, at: u32) -> bool {
        let mut wakers = Vec::new();
        let mut shard = self.lock_shard(id);
        let Some(entry) = shard.get_mut(id) else {
            return false;
        };
        let gone = entry.line.as_mut().and_then(|line| line.take(at));
        let granted = gone.as_ref().is_some_and(|waiter| waiter.granted);
        if gone.is_some() && !granted {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            // Those behind it may need less room.
            entry.grant(self.limit(), &self.waiting, &mut wakers);
        }
        drop(shard);
        drop(gone);
        wakers.into_iter().for_each(Waker::wake);
        granted
    }

    /// Ends a request that had a permit of `units`.
    #[inline]
    pub(super) fn release(&self, id: u64, units: u64) {
        let mut shard = self.lock_shard(id);
        let Some(entry) = shard.get_mut(id) else {
            return;
        };
        entry.in_flight = entry.in_flight.saturating_sub(units);
        if entry.line.is_some() {
            self.release_to_line(shard, id);
        } else if entry.in_flight == 0 {
            shard.remove(id);
        }
    }

    #[cold]
    #[inline(never)]
    fn release_to_line(&self, mut shard: MutexGuard<'_, Entries<Entry>>, id: u64) {
        let mut wakers = Vec::new();
        if let Some(entry) = shard.get_mut(id) {
            entry.grant(self.limit(), &self.waiting, &mut wakers);
            if entry.in_flight == 0 {
                shard.remove(id);
            }
        }
        drop(shard);
        wakers.into_iter().for_each(Waker::wake);
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
                entry.grant(self.limit(), &self.waiting, &mut wakers);
            }
            drop(entries);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// The units of `id` in flight.
    pub(super) fn in_flight(&self, id: u64) -> u64 {
        self.lock_shard(id)
            .get_mut(id)
            .map_or(0, |entry| entry.in_flight)
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

    fn try_take(&mut self, units: u64, limit: u64) -> Result<u64, u64> {
        if self.line.as_ref().is_some_and(|line| line.len() > 0) || !self.has_room(units, limit) {
            return Err(self.in_flight);
        }
        self.in_flight += units;
        Ok(self.in_flight)
    }

    /// A request of more units than the limit has room when it is alone, or it would never go on after
    /// the limit has become lower.
    const fn has_room(&self, units: u64, limit: u64) -> bool {
        self.in_flight == 0 || self.in_flight.saturating_add(units) <= limit
    }

    /// Grants permits to the first waiters.
    fn grant(&mut self, limit: u64, waiting: &AtomicU64, wakers: &mut Vec<Waker>) {
        let Some(mut line) = mem::take(&mut self.line) else {
            return;
        };
        while let Some(at) = line.front() {
            let Some(waiter) = line.get_mut(at) else {
                break;
            };
            if !self.has_room(waiter.units, limit) {
                break;
            }
            self.in_flight += waiter.units;
            waiter.granted = true;
            wakers.extend(waiter.waker.take());
            line.unlink(at);
            waiting.fetch_sub(1, Ordering::Relaxed);
        }
        self.line = Some(line);
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
