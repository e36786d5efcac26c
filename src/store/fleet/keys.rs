//! The budgets of all keys of a machine.

use std::{
    collections::HashMap,
    hash::{BuildHasher, BuildHasherDefault, Hash, Hasher},
    sync::{Arc, atomic::AtomicUsize},
};

use tokio::sync::oneshot;

use super::machine::{Answer, Budget, Limit};
use crate::backend::{Fullness, Losses};
use crate::clock::Tick;
use crate::decision::{Decision, Verdict};
use crate::error::StoreError;
use crate::receipt::Receipt;
use crate::store::local::Seeded;
use crate::sync::{AtomicU64, CachePadded, Mutex, MutexGuard, Ordering, lock};

const SHARDS: usize = 64;
/// How many keys of a full shard are looked at to find one to forget.
const LOOKS: usize = 32;

/// The keys by their hashes, which are secret: no client can choose two keys of one hash.
#[derive(Debug)]
pub(super) struct Keys {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
    hasher: Seeded,
    capacity: usize,
    len: AtomicUsize,
    evicted: AtomicU64,
    lost: AtomicU64,
}

type ByHash<T> = HashMap<u64, T, BuildHasherDefault<Hashed>>;
type Waiter = oneshot::Sender<Result<(), StoreError>>;

/// Every key that has something to report is in `due`, and is marked as listed; or it is in flight.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) limit: Arc<Limit>,
    /// Boxed: a map has room for more than its entries.
    pub(super) keys: ByHash<Box<Entry>>,
    due: Vec<u64>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) budget: Budget,
    /// What follows the prefix of the names of the limit.
    pub(super) name: Arc<str>,
    pub(super) is_in_flight: bool,
    is_listed: bool,
    /// Requests that wait for its next exchange.
    waiters: Vec<Waiter>,
}

/// What is to happen with a request.
pub(super) enum Outcome {
    Decided(Decision),
    /// An exchange decides, which is to be sent at once.
    Wait(oneshot::Receiver<Result<(), StoreError>>),
    /// The store would have to decide, and is not reached.
    CutOff,
    /// All keys of the table are being exchanged.
    Full,
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
            CachePadded(Mutex::new(Shard {
                limit: Arc::clone(&limit),
                keys: HashMap::default(),
                due: Vec::new(),
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
    pub(super) fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        // The map finds a key by the low bits and the highest seven.
        lock(&self.shards[usize::from(hash.to_be_bytes()[1]) % SHARDS].0)
    }

    pub(super) fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        self.shards.iter().map(|shard| lock(&shard.0))
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// As this machine sees it: its budgets, and what it has heard of others.
    pub(super) fn fullness(&self, now: Tick) -> Fullness {
        let percent = |shard: MutexGuard<'_, Shard>| {
            let budgets = shard.keys.values().map(|entry| &entry.budget);
            let percents = budgets.map(|budget| admitted(budget, &shard.limit, now).use_percent());
            percents.max()
        };
        Fullness {
            keys: self.len(),
            capacity: self.capacity,
            largest_use_percent: self.shards().filter_map(percent).max().unwrap_or(0),
        }
    }

    pub(super) fn losses(&self) -> Losses {
        Losses {
            evicted: self.evicted.load(Ordering::Relaxed),
            lost_charges: self.lost.load(Ordering::Relaxed),
            ..Losses::default()
        }
    }

    /// Decides on a request for the first time, or `again` after an exchange.
    pub(super) fn decide(
        &self,
        hash: u64,
        name: impl FnOnce() -> Arc<str>,
        (now, cost): (Tick, u64),
        [again, is_cut_off]: [bool; 2],
    ) -> Outcome {
        let mut shard = self.shard(hash);
        if cost > shard.limit.capacity {
            let unknown = Budget::default();
            let known = shard.keys.get(&hash).map(|entry| &entry.budget);
            let told = known.unwrap_or(&unknown);
            return Outcome::Decided(denied(told, &shard.limit, now, (cost, None)));
        }
        if !shard.keys.contains_key(&hash) {
            if is_cut_off {
                return Outcome::CutOff;
            }
            if !self.insert(&mut shard, hash, name, now) {
                return Outcome::Full;
            }
        }
        let Shard { limit, keys, due } = &mut *shard;
        let Some(entry) = keys.get_mut(&hash) else {
            return Outcome::Full;
        };
        let budget = &mut entry.budget;
        let answer = if again {
            budget.decide_again(limit, now, cost)
        } else {
            budget.decide(limit, now, cost)
        };
        if is_cut_off && answer == Answer::Wait {
            budget.give_up();
            return Outcome::CutOff;
        }
        entry.list(due, hash);
        match answer {
            Answer::Admit => Outcome::Decided(admitted(&entry.budget, limit, now)),
            Answer::Deny(retry) => {
                Outcome::Decided(denied(&entry.budget, limit, now, (cost, retry)))
            }
            Answer::Wait => {
                let (waiter, exchanged) = oneshot::channel();
                entry.waiters.retain(|waiter| !waiter.is_closed());
                entry.waiters.push(waiter);
                Outcome::Wait(exchanged)
            }
        }
    }

    /// The decision that a request would get, as far as this machine knows.
    pub(super) fn peek(&self, hash: u64, now: Tick, cost: u64) -> Decision {
        let shard = self.shard(hash);
        let limit = &shard.limit;
        let known = shard.keys.get(&hash).map(|entry| &entry.budget);
        let told = known.cloned().unwrap_or_default();
        match told.clone().decide(limit, now, cost) {
            Answer::Deny(retry) => denied(&told, limit, now, (cost, retry)),
            _ => admitted(&told, limit, now),
        }
    }

    /// Changes the budget of a key. Returns an admission with its figures; `None` if the table is full.
    pub(super) fn change(
        &self,
        hash: u64,
        name: impl FnOnce() -> Arc<str>,
        now: Tick,
        change: impl FnOnce(&mut Budget),
    ) -> Option<Decision> {
        let mut shard = self.shard(hash);
        if !shard.keys.contains_key(&hash) && !self.insert(&mut shard, hash, name, now) {
            return None;
        }
        let Shard {
            limit, keys, due, ..
        } = &mut *shard;
        let entry = keys.get_mut(&hash)?;
        change(&mut entry.budget);
        if entry.budget.is_due() {
            entry.list(due, hash);
        }
        Some(admitted(&entry.budget, limit, now))
    }

    /// Makes the entry of a key. Returns whether there is room for it.
    fn insert(
        &self,
        shard: &mut Shard,
        hash: u64,
        name: impl FnOnce() -> Arc<str>,
        now: Tick,
    ) -> bool {
        if self.len() >= self.capacity && !self.make_room(shard, now) {
            return false;
        }
        self.len.fetch_add(1, Ordering::Relaxed);
        let entry = Entry {
            budget: Budget::default(),
            name: name(),
            is_in_flight: false,
            is_listed: false,
            waiters: Vec::new(),
        };
        shard.keys.insert(hash, Box::new(entry));
        true
    }

    /// Forgets a key of a full table: one that need not be known, or is not used now, or any that is not being
    /// exchanged. Returns whether there is one, or none at all in this part of the table.
    fn make_room(&self, shard: &mut Shard, now: Tick) -> bool {
        let rank = |entry: &Entry| match () {
            () if !entry.is_idle() => 3,
            () if entry.budget.is_due() => 2,
            () if entry.budget.is_forgettable(&shard.limit, now) => 0,
            () => 1,
        };
        let looks = shard.keys.iter().take(LOOKS);
        let found = looks.map(|(hash, entry)| (rank(entry), *hash)).min();
        let Some((rank @ 0..3, hash)) = found else {
            return found.is_none();
        };
        shard.keys.remove(&hash);
        self.len.fetch_sub(1, Ordering::Relaxed);
        if rank > 0 {
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
        if rank == 2 {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// The keys that have something to report.
    pub(super) fn take_due(&self) -> Vec<u64> {
        let mut all = Vec::new();
        for mut shard in self.shards() {
            let Shard { keys, due, .. } = &mut *shard;
            for hash in due.drain(..) {
                if let Some(entry) = keys.get_mut(&hash) {
                    entry.is_listed = false;
                    all.push(hash);
                }
            }
        }
        all
    }

    /// Lists a key again, if it has something to report.
    pub(super) fn list(&self, hash: u64) {
        let mut shard = self.shard(hash);
        let Shard { keys, due, .. } = &mut *shard;
        if let Some(entry) = keys.get_mut(&hash).filter(|entry| entry.budget.is_due()) {
            entry.list(due, hash);
        }
    }

    /// Forgets the keys of a shard that need not be known.
    pub(super) fn sweep(&self, round: usize, now: Tick) {
        let mut shard = lock(&self.shards[round % SHARDS].0);
        let Shard { limit, keys, .. } = &mut *shard;
        let before = keys.len();
        keys.retain(|_, entry| !(entry.is_idle() && entry.budget.is_forgettable(limit, now)));
        let forgotten = before - keys.len();
        if forgotten > keys.len() {
            keys.shrink_to_fit();
        }
        self.len.fetch_sub(forgotten, Ordering::Relaxed);
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
    pub(super) fn fail_waiters(&self, error: &StoreError) {
        for mut shard in self.shards() {
            let shard = &mut *shard;
            let before = shard.keys.len();
            shard.keys.retain(|_, entry| {
                if entry.waiters.is_empty() {
                    return true;
                }
                entry.wake(&Err(error.clone()));
                entry.budget.give_up();
                entry.is_in_flight || !entry.budget.is_undecided()
            });
            self.len
                .fetch_sub(before - shard.keys.len(), Ordering::Relaxed);
            let keys = &shard.keys;
            shard.due.retain(|hash| keys.contains_key(hash));
            shard.due.shrink_to(2 * shard.due.len());
            shard.keys.shrink_to(2 * shard.keys.len());
        }
    }
}

impl Shard {
    /// Whether no key of it has anything to report.
    pub(super) fn is_reported(&self) -> bool {
        self.due.is_empty()
    }

    /// Whether requests wait for an exchange of the key, or it is to be reset.
    pub(super) fn is_urgent(&self, hash: u64) -> bool {
        self.keys.get(&hash).is_some_and(|entry| {
            let waits = entry.waiters.iter().any(|waiter| !waiter.is_closed());
            waits || entry.budget.is_reset()
        })
    }
}

impl Entry {
    /// Whether it is not being exchanged, and no request waits for that.
    fn is_idle(&self) -> bool {
        !self.is_in_flight && self.waiters.is_empty()
    }

    /// Lets the requests that wait for it go on.
    pub(super) fn wake(&mut self, result: &Result<(), StoreError>) {
        for waiter in std::mem::take(&mut self.waiters) {
            // The request may have been dropped.
            let _ = waiter.send(result.clone());
        }
    }

    #[inline]
    fn list(&mut self, due: &mut Vec<u64>, hash: u64) {
        if !self.is_listed {
            self.is_listed = true;
            due.push(hash);
        }
    }
}

fn admitted(budget: &Budget, limit: &Limit, now: Tick) -> Decision {
    let (part, limit, remaining, reset) = budget.told(limit, now);
    let mut decision = Decision::new(Verdict::Admit, limit, remaining, None, reset);
    decision.policy = part;
    decision.with_receipt(Receipt::at(now.as_nanos()))
}

fn denied(
    budget: &Budget,
    limit: &Limit,
    now: Tick,
    (cost, retry): (u64, Option<std::time::Duration>),
) -> Decision {
    let mut decision = admitted(budget, limit, now);
    let remaining = decision.remaining().min(cost.saturating_sub(1));
    decision.verdict = Verdict::Deny;
    decision.retry_after = retry;
    decision.reset_after = decision.reset_after.max(retry.unwrap_or_default());
    decision.with_remaining(remaining)
}

#[cfg(all(test, not(tower_throttle_loom)))]
mod tests;
