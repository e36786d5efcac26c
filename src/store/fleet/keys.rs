//! The budgets of all keys of a machine.

use std::{
    collections::HashMap,
    hash::{BuildHasher, BuildHasherDefault, Hash, Hasher},
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use tokio::sync::oneshot;

use super::figures::Rules;
use super::machine::{Answer, Budget};
use super::shape::Shape;
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

/// Every key that has something to report is in `due`, and is marked as listed; or it is in flight.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) common: Arc<Common>,
    pub(super) keys: HashMap<u64, Entry, BuildHasherDefault<Hashed>>,
    due: Vec<u64>,
    /// Until then a key that is not known may have been forgotten, so it waits for an exchange.
    forgets_until: Tick,
}

/// What all keys have in common.
#[derive(Clone, Debug)]
pub(super) struct Common {
    pub(super) rules: Rules,
    pub(super) shape: Arc<Shape>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) budget: Budget,
    pub(super) is_in_flight: bool,
    is_listed: bool,
    /// Beside the rest, so that more keys fit into the processor's memory.
    pub(super) rare: Box<Rare>,
}

#[derive(Debug)]
pub(super) struct Rare {
    pub(super) name: Arc<str>,
    /// Requests that wait for the next exchange.
    waiters: Vec<oneshot::Sender<Result<(), StoreError>>>,
}

/// What is to happen with a request.
pub(super) enum Outcome {
    Decided(Decision),
    /// The next exchange decides; it is to be `now` if nothing is known of the key.
    Wait {
        exchanged: oneshot::Receiver<Result<(), StoreError>>,
        now: bool,
    },
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
    pub(super) fn new(capacity: usize, common: Common) -> Self {
        let common = Arc::new(common);
        let shard = |_| {
            CachePadded(Mutex::new(Shard {
                common: Arc::clone(&common),
                keys: HashMap::default(),
                due: Vec::new(),
                forgets_until: Tick::ZERO,
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
            let of_key = |known: &Budget| {
                let mut budget = known.clone();
                budget.look(&shard.common.rules, &shard.common.shape, now);
                admitted(&budget, now).use_percent()
            };
            let entries = shard.keys.values();
            entries.map(|entry| of_key(&entry.budget)).max()
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

    /// Decides on a request if nothing but the budget itself, or a denial before, is needed.
    #[inline]
    pub(super) fn try_decide(&self, hash: u64, now: Tick, cost: u64) -> Option<Decision> {
        let mut shard = self.shard(hash);
        let Shard { keys, due, .. } = &mut *shard;
        let entry = keys.get_mut(&hash)?;
        if entry.budget.try_spend(now, cost) {
            entry.list(due, hash);
            return Some(admitted(&entry.budget, now));
        }
        let wait = entry.budget.try_deny(now, cost)?;
        entry.list(due, hash);
        Some(denied(&entry.budget, now, (cost, Some(wait))))
    }

    /// Decides on a request for the first time, or again after an exchange.
    pub(super) fn decide(
        &self,
        hash: u64,
        name: impl FnOnce() -> Arc<str>,
        (now, cost, again): (Tick, u64, bool),
    ) -> Outcome {
        let mut shard = self.entry(hash, name, now);
        let forgets = now < shard.forgets_until;
        let Shard {
            common, keys, due, ..
        } = &mut *shard;
        let Some(entry) = keys.get_mut(&hash) else {
            return Outcome::Decided(denied(&Budget::default(), now, (cost, None)));
        };
        let rules = Rules {
            takes_ahead: common.rules.takes_ahead && !(forgets && entry.budget.is_new()),
            ..common.rules
        };
        let answer = if again {
            entry.budget.decide_slowly(&rules, now, cost)
        } else {
            entry.budget.decide(&rules, now, cost)
        };
        entry.budget.look(&common.rules, &common.shape, now);
        entry.list(due, hash);
        match answer {
            Answer::Admit => Outcome::Decided(admitted(&entry.budget, now)),
            Answer::Deny(retry) => Outcome::Decided(denied(&entry.budget, now, (cost, retry))),
            Answer::Wait { now } => {
                let (waiter, exchanged) = oneshot::channel();
                entry.rare.waiters.retain(|waiter| !waiter.is_closed());
                entry.rare.waiters.push(waiter);
                Outcome::Wait { exchanged, now }
            }
        }
    }

    /// The decision that a request would get, as far as this machine knows.
    pub(super) fn peek(&self, hash: u64, now: Tick, cost: u64) -> Decision {
        let shard = self.shard(hash);
        let common = &shard.common;
        let known = shard.keys.get(&hash).map(|entry| &entry.budget);
        let mut budget = known.cloned().unwrap_or_default();
        budget.look(&common.rules, &common.shape, now);
        let told = budget.clone();
        match budget.decide(&common.rules, now, cost) {
            Answer::Deny(retry) => denied(&told, now, (cost, retry)),
            _ => admitted(&told, now),
        }
    }

    /// Changes the budget of a key. Returns an admission with its figures.
    pub(super) fn change(
        &self,
        hash: u64,
        name: impl FnOnce() -> Arc<str>,
        now: Tick,
        change: impl FnOnce(&mut Budget, &Rules),
    ) -> Decision {
        let mut shard = self.entry(hash, name, now);
        let Shard {
            common, keys, due, ..
        } = &mut *shard;
        let Some(entry) = keys.get_mut(&hash) else {
            return admitted(&Budget::default(), now);
        };
        change(&mut entry.budget, &common.rules);
        entry.budget.look(&common.rules, &common.shape, now);
        if entry.budget.is_due() {
            entry.list(due, hash);
        }
        admitted(&entry.budget, now)
    }

    /// The shard with the entry of a key, which is made if there is none.
    fn entry(
        &self,
        hash: u64,
        name: impl FnOnce() -> Arc<str>,
        now: Tick,
    ) -> MutexGuard<'_, Shard> {
        let mut shard = self.shard(hash);
        if !shard.keys.contains_key(&hash) {
            if self.len() >= self.capacity {
                self.make_room(&mut shard, now);
            }
            self.len.fetch_add(1, Ordering::Relaxed);
            let entry = Entry {
                budget: Budget::default(),
                is_in_flight: false,
                is_listed: false,
                rare: Box::new(Rare {
                    name: name(),
                    waiters: Vec::new(),
                }),
            };
            shard.keys.insert(hash, entry);
        }
        shard
    }

    /// Forgets a key of a full table: one that need not be known, or is not used now, or any that is not
    /// being exchanged. If there is none here, the table holds a few more than its capacity.
    fn make_room(&self, shard: &mut Shard, now: Tick) {
        let rules = shard.common.rules;
        let rank = |entry: &Entry| match () {
            () if entry.is_in_flight || !entry.rare.waiters.is_empty() => 3,
            () if entry.budget.is_due() => 2,
            () if entry.budget.is_forgettable(&rules, now) => 0,
            () => 1,
        };
        let looks = shard.keys.iter().take(LOOKS);
        let found = looks.map(|(hash, entry)| (rank(entry), *hash)).min();
        let Some((rank @ 0..3, hash)) = found else {
            return;
        };
        shard.keys.remove(&hash);
        self.len.fetch_sub(1, Ordering::Relaxed);
        if rank > 0 {
            self.evicted.fetch_add(1, Ordering::Relaxed);
            let memory = Duration::from_micros(shard.common.shape.memory());
            shard.forgets_until = shard.forgets_until.max(now.plus(memory));
        }
        if rank == 2 {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
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
        let rules = shard.common.rules;
        let before = shard.keys.len();
        shard.keys.retain(|_, entry| {
            let is_idle = !entry.is_in_flight && entry.rare.waiters.is_empty();
            !(is_idle && entry.budget.is_forgettable(&rules, now))
        });
        let forgotten = before - shard.keys.len();
        if forgotten > shard.keys.len() {
            shard.keys.shrink_to_fit();
        }
        self.len.fetch_sub(forgotten, Ordering::Relaxed);
    }

    pub(super) fn common(&self) -> Arc<Common> {
        Arc::clone(&self.shard(0).common)
    }

    /// Changes what all keys have in common.
    pub(super) fn set_common(&self, change: impl Fn(&mut Common)) {
        for mut shard in self.shards() {
            change(Arc::make_mut(&mut shard.common));
        }
    }

    /// Lets every waiting request go on with an error.
    pub(super) fn fail_waiters(&self, error: &StoreError) {
        for mut shard in self.shards() {
            for entry in shard.keys.values_mut() {
                entry.wake(&Err(error.clone()));
            }
        }
    }
}

impl Shard {
    /// Whether no key of it has anything to report.
    pub(super) fn is_reported(&self) -> bool {
        self.due.is_empty()
    }
}

impl Entry {
    #[inline]
    fn list(&mut self, due: &mut Vec<u64>, hash: u64) {
        if !self.is_listed {
            self.is_listed = true;
            due.push(hash);
        }
    }

    pub(super) fn wake(&mut self, result: &Result<(), StoreError>) {
        for waiter in self.rare.waiters.drain(..) {
            // The request may have been dropped.
            let _ = waiter.send(result.clone());
        }
    }
}

#[inline]
fn admitted(budget: &Budget, now: Tick) -> Decision {
    let (part, limit, remaining, reset) = budget.told(now);
    let mut decision = Decision::new(Verdict::Admit, limit, remaining, None, reset);
    decision.policy = part;
    decision.with_receipt(Receipt::at(now.as_nanos()))
}

#[inline]
fn denied(budget: &Budget, now: Tick, (cost, retry): (u64, Option<Duration>)) -> Decision {
    let mut decision = admitted(budget, now);
    let remaining = decision.remaining().min(cost.saturating_sub(1));
    decision.verdict = Verdict::Deny;
    decision.retry_after = retry;
    decision.reset_after = decision.reset_after.max(retry.unwrap_or_default());
    decision.with_remaining(remaining)
}

#[cfg(all(test, not(tower_throttle_loom)))]
mod tests;
