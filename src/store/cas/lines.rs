//! The calls that are queued per key, and the last records of keys without calls.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use super::{
    decider::KeyCall,
    recent::{Known, RecentRecords},
};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::store::remote::{self, TaskId, Waiting};
use crate::sync::{Mutex, MutexGuard, lock};

const SHARDS: usize = 16;

/// A call that waits for its decision.
pub(super) type QueuedCall<A> = Waiting<KeyCall<A>, Decision>;

/// The calls of a key. One task at a time decides them.
type Line<A> = remote::Line<KeyCall<A>, Decision, 1>;

/// The calls of all keys.
#[derive(Debug)]
pub(super) struct Lines<A> {
    shards: [Mutex<Shard<A>>; SHARDS],
    hasher: RandomState,
    /// How many records each half of the cache of a shard holds.
    cached_per_half: usize,
}

#[derive(Debug)]
struct Shard<A> {
    lines: HashMap<Arc<str>, Line<A>>,
    /// The last records of keys without calls.
    records: RecentRecords,
}

impl<A> Lines<A> {
    /// Keeps the records of about `cached` keys without calls.
    pub(super) fn new(cached: usize) -> Self {
        Self {
            shards: std::array::from_fn(|_| {
                Mutex::new(Shard {
                    lines: HashMap::new(),
                    records: RecentRecords::default(),
                })
            }),
            hasher: RandomState::new(),
            cached_per_half: cached.div_ceil(2 * SHARDS),
        }
    }

    /// Queues a call. Returns the id of a new task, if the key needs one.
    pub(super) fn push(
        &self,
        key: &Arc<str>,
        call: QueuedCall<A>,
        now: Tick,
        ends_by: Tick,
    ) -> Option<TaskId> {
        let mut shard = self.shard(key);
        let line = shard.lines.entry(Arc::clone(key)).or_insert_with(Line::new);
        line.push(call, now, ends_by)
    }

    /// The next calls of a key, at most `most`. If there are none, the task has ended, and `known`
    /// is kept for the next one. `None` also if another task has taken over.
    pub(super) fn next_calls(
        &self,
        key: &Arc<str>,
        id: TaskId,
        most: usize,
        ends_by: Tick,
        known: &mut Option<Known>,
    ) -> Option<Vec<QueuedCall<A>>> {
        let mut shard = self.shard(key);
        if self.end_if_unused(&mut shard, key, id, known) {
            return None;
        }
        shard.lines.get_mut(key)?.take(id, &(0..=most), ends_by)
    }

    /// Ends the task of a key for which no call waits: a caller that calls again starts another one. Returns
    /// whether the task has ended, also because another one has taken over.
    pub(super) fn ends(&self, key: &Arc<str>, id: TaskId, known: &mut Option<Known>) -> bool {
        self.end_if_unused(&mut self.shard(key), key, id, known)
    }

    fn end_if_unused(
        &self,
        shard: &mut Shard<A>,
        key: &Arc<str>,
        id: TaskId,
        known: &mut Option<Known>,
    ) -> bool {
        let line = shard.lines.get(key).filter(|line| line.is_served_by(id));
        let waiting = line.map(Line::len);
        if waiting == Some(0) {
            shard.lines.remove(key);
            if let Some(known) = known.take() {
                shard.records.keep(key, known, self.cached_per_half);
            }
        }
        waiting.unwrap_or(0) == 0
    }

    /// Calls that have come since, at most `most`, for a task that has some already.
    pub(super) fn more_calls(
        &self,
        key: &Arc<str>,
        id: TaskId,
        most: usize,
        ends_by: Tick,
    ) -> Vec<QueuedCall<A>> {
        let mut shard = self.shard(key);
        let line = shard.lines.get_mut(key);
        let more = line.and_then(|line| line.take(id, &(0..=most), ends_by));
        more.unwrap_or_default()
    }

    /// The number of calls for a key that are queued.
    pub(super) fn waiting(&self, key: &Arc<str>) -> usize {
        let shard = self.shard(key);
        shard.lines.get(key).map_or(0, Line::len)
    }

    /// The last record of a key that had no calls.
    pub(super) fn take_known(&self, key: &Arc<str>) -> Option<Known> {
        self.shard(key).records.take(key)
    }

    /// Ends a task, if it has not ended: its calls fail. Returns how many.
    pub(super) fn abandon(&self, key: &Arc<str>, id: TaskId) -> usize {
        let mut shard = self.shard(key);
        let Some(line) = shard.lines.get_mut(key) else {
            return 0;
        };
        let left = line.end(id);
        if line.is_idle() {
            shard.lines.remove(key);
        }
        // Its callers wake up after the lock is released.
        drop(shard);
        left.len()
    }

    /// The number of calls that are queued.
    pub(super) fn queued(&self) -> usize {
        let calls = |shard: &Mutex<Shard<A>>| {
            let shard = lock(shard);
            shard.lines.values().map(Line::len).sum::<usize>()
        };
        self.shards.iter().map(calls).sum()
    }

    fn shard(&self, key: &Arc<str>) -> MutexGuard<'_, Shard<A>> {
        let hash = self.hasher.hash_one(&**key).to_ne_bytes();
        lock(&self.shards[usize::from(hash[0]) % SHARDS])
    }
}
