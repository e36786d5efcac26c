//! The calls that are queued per key, and the last records of keys without calls.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use tokio::sync::oneshot;

use super::{
    decider::Call,
    recent::{Known, RecentRecords},
};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::StoreError;
use crate::sync::{Mutex, lock};

const SHARDS: usize = 16;

/// A call that waits for its decision.
#[derive(Debug)]
pub(super) struct QueuedCall {
    pub(super) call: Call,
    pub(super) deadline: Tick,
    pub(super) decision_tx: oneshot::Sender<Result<Decision, StoreError>>,
}

impl QueuedCall {
    /// Whether the operation still has to be done.
    pub(super) fn is_wanted(&self, now: Tick) -> bool {
        self.deadline > now && !self.decision_tx.is_closed()
    }
}

/// The calls of all keys. Those of one key are decided by one driver at a time.
#[derive(Debug)]
pub(super) struct Lines {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    /// How many records each half of the cache of a shard holds.
    cached_per_half: usize,
}

#[derive(Debug, Default)]
struct Shard {
    lines: HashMap<Arc<str>, Line>,
    /// The last records of keys without a driver.
    records: RecentRecords,
    next_driver: u64,
}

#[derive(Debug)]
struct Line {
    calls: VecDeque<QueuedCall>,
    driver: DriverId,
    /// The driver has ended by then, unless its runtime does not run any more. After that another
    /// one may take its place.
    ends_by: Tick,
}

/// Tells the driver of a key from those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DriverId(u64);

impl Lines {
    /// Keeps the records of about `cached` keys without calls.
    pub(super) fn new(cached: usize) -> Self {
        Self {
            shards: Default::default(),
            hasher: RandomState::new(),
            cached_per_half: cached.div_ceil(2 * SHARDS),
        }
    }

    /// Queues a call. Returns the id of a new driver, if the key needs one.
    pub(super) fn push(
        &self,
        key: &Arc<str>,
        call: QueuedCall,
        now: Tick,
        ends_by: Tick,
    ) -> Option<DriverId> {
        let mut shard = self.shard(key);
        let shard = &mut *shard;
        shard.next_driver += 1;
        let id = DriverId(shard.next_driver);
        let Some(line) = shard.lines.get_mut(key) else {
            let line = Line {
                calls: VecDeque::from([call]),
                driver: id,
                ends_by,
            };
            shard.lines.insert(Arc::clone(key), line);
            return Some(id);
        };
        line.calls.push_back(call);
        if line.ends_by >= now {
            return None;
        }
        (line.driver, line.ends_by) = (id, ends_by);
        Some(id)
    }

    /// Whether calls of a key wait. If none do, the driver has ended, and `known` is kept for the next
    /// one. `false` also if another driver has taken over.
    pub(super) fn has_calls(
        &self,
        key: &Arc<str>,
        id: DriverId,
        ends_by: Tick,
        known: &mut Option<Known>,
    ) -> bool {
        let next = self.next_calls(key, id, 0, ends_by, known);
        next.is_some()
    }

    /// The next calls of a key, at most `most`. If there are none, the driver has ended, and `known`
    /// is kept for the next one. `None` also if another driver has taken over.
    pub(super) fn next_calls(
        &self,
        key: &Arc<str>,
        id: DriverId,
        most: usize,
        ends_by: Tick,
        known: &mut Option<Known>,
    ) -> Option<Vec<QueuedCall>> {
        let mut shard = self.shard(key);
        let line = shard.lines.get_mut(key).filter(|line| line.driver == id)?;
        if line.calls.is_empty() {
            shard.lines.remove(key);
            if let Some(known) = known.take() {
                shard.records.keep(key, known, self.cached_per_half);
            }
            return None;
        }
        line.ends_by = ends_by;
        let count = line.calls.len().min(most);
        Some(line.calls.drain(..count).collect())
    }

    /// Calls that have come since, at most `most`, for a driver that has some already.
    pub(super) fn more_calls(
        &self,
        key: &Arc<str>,
        id: DriverId,
        most: usize,
        ends_by: Tick,
    ) -> Vec<QueuedCall> {
        let mut shard = self.shard(key);
        let line = shard.lines.get_mut(key).filter(|line| line.driver == id);
        let Some(line) = line else {
            return Vec::new();
        };
        line.ends_by = ends_by;
        let count = line.calls.len().min(most);
        line.calls.drain(..count).collect()
    }

    /// The number of calls for a key that are queued.
    pub(super) fn waiting(&self, key: &Arc<str>) -> usize {
        let shard = self.shard(key);
        shard.lines.get(key).map_or(0, |line| line.calls.len())
    }

    /// The last record of a key that had no driver.
    pub(super) fn take_known(&self, key: &Arc<str>) -> Option<Known> {
        self.shard(key).records.take(key)
    }

    /// Ends a driver, if it has not ended: its calls fail. Returns how many.
    pub(super) fn abandon(&self, key: &Arc<str>, id: DriverId) -> usize {
        let mut shard = self.shard(key);
        let is_own = shard.lines.get(key).is_some_and(|line| line.driver == id);
        let line = is_own.then(|| shard.lines.remove(key)).flatten();
        // Its callers wake up after the lock is released.
        drop(shard);
        line.map_or(0, |line| line.calls.len())
    }

    /// The number of calls that are queued.
    pub(super) fn queued(&self) -> usize {
        let calls = |shard: &Mutex<Shard>| {
            let shard = lock(shard);
            shard
                .lines
                .values()
                .map(|line| line.calls.len())
                .sum::<usize>()
        };
        self.shards.iter().map(calls).sum()
    }

    fn shard(&self, key: &Arc<str>) -> crate::sync::MutexGuard<'_, Shard> {
        let hash = self.hasher.hash_one(&**key).to_ne_bytes();
        lock(&self.shards[usize::from(hash[0]) % SHARDS])
    }
}
