//! The budgets of all keys of a machine.

use std::{
    collections::HashMap,
    hash::{BuildHasher, BuildHasherDefault, Hash, Hasher},
    sync::{Arc, atomic::AtomicUsize},
};

use tokio::sync::oneshot;

use super::exchange::Limit;
use super::machine::{Answer, Budget};
use crate::backend::Stats;
use crate::clock::Tick;
use crate::decision::{Decision, Verdict};
use crate::error::StoreError;
use crate::receipt::Receipt;
use crate::store::local::Seeded;
use crate::sync::{AtomicU64, CachePadded, Mutex, MutexGuard, Ordering, lock};

const SHARDS: usize = 64;
/// Among how many keys of a full shard, which are not being exchanged, one to forget is chosen.
const LOOKS: usize = 32;

/// The keys by their hashes, which are secret: no client can choose two keys of one hash.
#[derive(Debug)]
pub(super) struct Keys {
    shards: Box<[CachePadded<Mutex<KeyShard>>]>,
    hasher: Seeded,
    pub(super) capacity: usize,
    len: AtomicUsize,
    evicted: AtomicU64,
    lost: AtomicU64,
}

type ByHash<T> = HashMap<u64, T, BuildHasherDefault<Hashed>>;
type Waiter = oneshot::Sender<Result<(), StoreError>>;
/// When the next exchange of a key is done.
pub(super) type Exchanged = oneshot::Receiver<Result<(), StoreError>>;

#[derive(Debug)]
pub(super) struct KeyShard {
    pub(super) limit: Arc<Limit>,
    /// Boxed: a map has room for more than its entries.
    pub(super) keys: ByHash<Box<KeyEntry>>,
}

#[derive(Debug)]
pub(super) struct KeyEntry {
    pub(super) budget: Budget,
    /// What follows the prefix of the names of the limit.
    pub(super) name: Arc<str>,
    pub(super) is_in_flight: bool,
    /// Requests that wait for its next exchange.
    waiters: Vec<Waiter>,
}

/// The hash of a hash.
#[derive(Debug, Default)]
pub(super) struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Keys {
    pub(super) fn new(capacity: usize, limit: Limit) -> Self {
        let limit = Arc::new(limit);
        let shard = |_| {
            CachePadded(Mutex::new(KeyShard {
                limit: Arc::clone(&limit),
                keys: HashMap::default(),
            }))
        };
        Self {
            shards: (0..SHARDS).map(shard).collect(),
            hasher: Seeded::default(),
            capacity,
            len: AtomicUsize::new(0),
            evicted: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(super) fn hash<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        self.hasher.hash_one(key)
    }

    #[inline]
    pub(super) fn shard(&self, hash: u64) -> MutexGuard<'_, KeyShard> {
        // The map finds a key by the low bits and the highest seven.
        lock(&self.shards[usize::from(hash.to_be_bytes()[1]) % SHARDS].0)
    }

    pub(super) fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, KeyShard>> {
        self.shards.iter().map(|shard| lock(&shard.0))
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    pub(super) fn stats(&self) -> Stats {
        Stats {
            live: self.len(),
            evicted: self.evicted.load(Ordering::Relaxed),
            lost_charges: self.lost.load(Ordering::Relaxed),
            ..Stats::default()
        }
    }

    /// Decides on a request for the first time, or `again` after an exchange; or lets it wait for one, which is to be
    /// sent at once.
    ///
    /// # Errors
    /// If the table is full.
    pub(super) fn decide(
        &self,
        hash: u64,
        name: impl FnOnce() -> Arc<str>,
        (now, cost): (Tick, u64),
        again: bool,
    ) -> Result<Result<Decision, Exchanged>, StoreError> {
        let mut shard = self.shard(hash);
        if cost > shard.limit.shape.capacity {
            return Ok(Ok(shard.peek(hash, now, cost)));
        }
        let (entry, limit) = self.entry(&mut shard, hash, name, now)?;
        let budget = &mut entry.budget;
        let answer = budget.decide(limit, now, cost, again);
        if answer != Answer::Wait {
            return Ok(Ok(decision(budget, limit, now, (cost, answer))));
        }
        let (waiter, exchanged) = oneshot::channel();
        entry.waiters.retain(|waiter| !waiter.is_closed());
        entry.waiters.push(waiter);
        Ok(Err(exchanged))
    }

    /// Changes the budget of a key. Returns an admission with its figures.
    ///
    /// # Errors
    /// If the table is full.
    pub(super) fn change(
        &self,
        hash: u64,
        name: impl FnOnce() -> Arc<str>,
        now: Tick,
        change: impl FnOnce(&mut Budget),
    ) -> Result<Decision, StoreError> {
        let mut shard = self.shard(hash);
        let (entry, limit) = self.entry(&mut shard, hash, name, now)?;
        change(&mut entry.budget);
        Ok(decision(&entry.budget, limit, now, (0, Answer::Admit)))
    }

    /// The entry of a key, which is made if there is room for it.
    fn entry<'a>(
        &self,
        shard: &'a mut KeyShard,
        hash: u64,
        name: impl FnOnce() -> Arc<str>,
        now: Tick,
    ) -> Result<(&'a mut KeyEntry, &'a Limit), StoreError> {
        let is_full = self.len() >= self.capacity && !shard.keys.contains_key(&hash);
        if is_full && !self.make_room(shard, now) {
            let message =
                "all keys of the table are being exchanged: a larger capacity avoids this";
            return Err(StoreError::new(message, true));
        }
        let entry = shard.keys.entry(hash).or_insert_with(|| {
            self.len.fetch_add(1, Ordering::Relaxed);
            Box::new(KeyEntry {
                budget: Budget::default(),
                name: name(),
                is_in_flight: false,
                waiters: Vec::new(),
            })
        });
        Ok((entry, &shard.limit))
    }

    /// Forgets a key of a full table: one that need not be known, or is not used now, or any that is not being
    /// exchanged. Returns whether there is one, or none at all in this part of the table.
    fn make_room(&self, shard: &mut KeyShard, now: Tick) -> bool {
        let idle = shard.keys.iter().filter(|(_, entry)| entry.is_idle());
        let ranked = idle.take(LOOKS).map(|(hash, entry)| {
            let is_known = !entry.budget.is_forgettable(&shard.limit, now);
            (entry.budget.is_due(), is_known, *hash)
        });
        let Some((is_due, is_known, hash)) = ranked.min() else {
            return shard.keys.is_empty();
        };
        shard.keys.remove(&hash);
        self.len.fetch_sub(1, Ordering::Relaxed);
        self.evicted.fetch_add(is_known.into(), Ordering::Relaxed);
        self.lost.fetch_add(is_due.into(), Ordering::Relaxed);
        true
    }

    /// The keys that have something to report, but for those that requests wait for, which are urgent already. Those that
    /// need not be known are forgotten.
    pub(super) fn due(&self, now: Tick) -> Vec<u64> {
        let mut due = Vec::new();
        for mut shard in self.shards() {
            self.forget(&mut shard, now);
            let is_due = |entry: &KeyEntry| entry.is_idle() && entry.budget.is_due();
            let entries = shard.keys.iter().filter(|(_, entry)| is_due(entry));
            due.extend(entries.map(|(hash, _)| *hash));
        }
        due
    }

    fn forget(&self, shard: &mut KeyShard, now: Tick) {
        let KeyShard { limit, keys } = shard;
        let before = keys.len();
        keys.retain(|_, entry| !entry.is_idle() || !entry.budget.is_forgettable(limit, now));
        self.len.fetch_sub(before - keys.len(), Ordering::Relaxed);
        if keys.capacity() > 8 * (keys.len() + 1) {
            keys.shrink_to(2 * keys.len());
        }
    }

    pub(super) fn limit(&self) -> Arc<Limit> {
        Arc::clone(&self.shard(0).limit)
    }

    /// Changes what all keys have in common.
    pub(super) fn set_limit(&self, limit: &Arc<Limit>) {
        for mut shard in self.shards() {
            shard.limit = Arc::clone(limit);
        }
    }

    /// Lets every waiting request go on with an error, and forgets what only they have asked for.
    pub(super) fn fail_waiters(&self, error: &StoreError, now: Tick) {
        for mut shard in self.shards() {
            shard.keys.values_mut().for_each(|entry| entry.fail(error));
            self.forget(&mut shard, now);
        }
    }
}

impl KeyShard {
    /// The decision that a request would get, as far as this machine knows.
    pub(super) fn peek(&self, hash: u64, now: Tick, cost: u64) -> Decision {
        let known = self.keys.get(&hash).map(|entry| entry.budget.clone());
        let budget = known.unwrap_or_default();
        let answer = budget.clone().decide(&self.limit, now, cost, false);
        decision(&budget, &self.limit, now, (cost, answer))
    }
}

impl KeyEntry {
    /// Whether it is not being exchanged, and no request waits for that.
    fn is_idle(&self) -> bool {
        !self.is_in_flight && self.waiters.is_empty()
    }

    /// The group of its name.
    pub(super) fn group(&self) -> Option<u64> {
        self.name.split('}').next()?.parse().ok()
    }

    /// Lets the requests that wait for it go on with an error, and forgets what they have asked for.
    pub(super) fn fail(&mut self, error: &StoreError) {
        if !self.waiters.is_empty() {
            self.wake(&Err(error.clone()));
            self.budget.give_up();
        }
    }

    /// Lets the requests that wait for it go on.
    pub(super) fn wake(&mut self, result: &Result<(), StoreError>) {
        for waiter in std::mem::take(&mut self.waiters) {
            // The request may have been dropped.
            let _ = waiter.send(result.clone());
        }
    }
}

fn decision(budget: &Budget, limit: &Limit, now: Tick, (cost, answer): (u64, Answer)) -> Decision {
    let (part, most, mut remaining, reset) = budget.told(limit, now);
    let mut decision = Decision::new(Verdict::Admit, most, remaining, None, reset);
    decision.policy = part;
    if let Answer::Deny(retry) = answer {
        remaining = remaining.min(cost.saturating_sub(1));
        decision.verdict = Verdict::Deny;
        decision.retry_after = retry;
        decision.reset_after = decision.reset_after.max(retry.unwrap_or_default());
        decision = decision.with_remaining(remaining);
    }
    decision.with_receipt(Receipt::at(now.as_nanos()))
}

#[cfg(all(test, not(tower_throttle_loom)))]
mod tests;
