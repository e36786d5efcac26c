//! The calls that wait, per lane: of one key, or of all keys of a group. And the last records of keys without calls.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    hash::BuildHasher,
    ops::RangeInclusive,
    sync::Arc,
};

use tokio::sync::oneshot;

use super::{decider::KeyCall, swap::Known};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::StoreError;
use crate::store::local::Seeded;
use crate::sync::{Mutex, MutexGuard, lock};

const SHARDS: u64 = 16;
/// Further calls are refused.
const MAX_QUEUED: usize = 100_000;

/// Calls that are decided together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    /// Those of a key, one swap after the other.
    Key(Arc<str>),
    /// Those of a key, by programs.
    KeyByProgram(Arc<str>),
    /// Those of all keys of a group, by programs.
    Group(usize),
}

/// A call that waits for its decision.
#[derive(Debug)]
pub(super) struct Waiting<A> {
    pub(super) key: Arc<str>,
    pub(super) call: KeyCall<A>,
    pub(super) queued_at: Tick,
    pub(super) deadline: Tick,
    /// That of the cache of denials, before it is sent.
    pub(super) version: u64,
    /// `None` if its caller sends it, or if it has ended.
    pub(super) reply_tx: Option<oneshot::Sender<Result<Decision, StoreError>>>,
}

impl<A> Waiting<A> {
    /// Whether it still has to be done.
    pub(super) fn is_wanted(&self, now: Tick) -> bool {
        let reply_tx = self.reply_tx.as_ref();
        self.deadline > now && !reply_tx.is_some_and(oneshot::Sender::is_closed)
    }

    /// Ends it.
    pub(super) fn reply(&mut self, result: Result<Decision, StoreError>) {
        if let Some(reply_tx) = self.reply_tx.take() {
            // The call may have been dropped.
            let _ = reply_tx.send(result);
        }
    }
}

/// The place of a task: its lane, and its number there.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) lane: Lane,
    id: u64,
}

#[derive(Debug)]
struct Task {
    /// Tells it from all others of its lane.
    id: u64,
    /// How many calls it has taken at last.
    serves: usize,
    /// It has ended by then, unless its runtime does not run any more. After that another one may take
    /// its place.
    ends_by: Tick,
}

/// Calls in their order, and at most two tasks that serve them. A task ends when no call waits.
#[derive(Debug)]
struct LaneQueue<A> {
    calls: VecDeque<Waiting<A>>,
    tasks: Vec<Task>,
    /// A call that its caller sends itself ends by then.
    alone_until: Option<Tick>,
}

/// The calls of all keys.
#[derive(Debug)]
pub(super) struct Lanes<A> {
    shards: Box<[Mutex<LaneShard<A>>]>,
    hasher: Seeded,
    /// Of about how many keys without calls the last record is kept.
    cached: usize,
}

#[derive(Debug)]
struct LaneShard<A> {
    lines: HashMap<Lane, LaneQueue<A>, Seeded>,
    /// The last records of keys without calls. They save a read: as long as no other machine changes the key, a write is
    /// enough.
    records: HashMap<Arc<str>, Known, Seeded>,
    /// The number of the next task.
    next_task: u64,
}

impl<A> LaneQueue<A> {
    const fn new() -> Self {
        Self {
            calls: VecDeque::new(),
            tasks: Vec::new(),
            alone_until: None,
        }
    }

    fn is_idle(&self) -> bool {
        self.tasks.is_empty() && self.alone_until.is_none()
    }

    fn task(&mut self, id: u64) -> Option<&mut Task> {
        self.tasks.iter_mut().find(|task| task.id == id)
    }
}

impl<A> Lanes<A> {
    pub(super) fn new(cached: usize) -> Self {
        Self {
            shards: (0..SHARDS)
                .map(|_| {
                    Mutex::new(LaneShard {
                        lines: HashMap::default(),
                        records: HashMap::default(),
                        next_task: 0,
                    })
                })
                .collect(),
            hasher: Seeded::default(),
            cached,
        }
    }

    /// Lets a caller send its call itself, if nothing else happens in the lane. [`leave`](Self::leave) ends that.
    pub(super) fn enter_alone(&self, lane: &Lane, now: Tick, ends_by: Tick) -> bool {
        let mut shard = self.shard(lane);
        let line = shard
            .lines
            .entry(lane.clone())
            .or_insert_with(LaneQueue::new);
        let is_alone = line.calls.is_empty()
            && line.tasks.iter().all(|task| task.ends_by < now)
            && line.alone_until.is_none_or(|until| until < now);
        if is_alone {
            line.alone_until = Some(ends_by);
        }
        is_alone
    }

    /// The call of a caller has ended.
    pub(super) fn leave(&self, lane: &Lane) {
        let mut shard = self.shard(lane);
        if let Some(line) = shard.lines.get_mut(lane) {
            line.alone_until = None;
            if line.is_idle() && line.calls.is_empty() {
                shard.lines.remove(lane);
            }
        }
    }

    /// Queues a call, which one of at most `most` tasks serves. Returns the place of a new task, if there is one more.
    ///
    /// # Errors
    /// Returns the call if too many wait.
    pub(super) fn push(
        &self,
        lane: &Lane,
        call: Waiting<A>,
        most: usize,
        (now, ends_by): (Tick, Tick),
    ) -> Result<Option<Place>, Waiting<A>> {
        let mut shard = self.shard(lane);
        let id = shard.next_task;
        shard.next_task += 1;
        let line = shard
            .lines
            .entry(lane.clone())
            .or_insert_with(LaneQueue::new);
        if line.calls.len() >= MAX_QUEUED {
            return Err(call);
        }
        line.calls.push_back(call);
        line.tasks.retain(|task| task.ends_by >= now);
        if line.tasks.len() >= most {
            return Ok(None);
        }
        line.tasks.push(Task {
            id,
            serves: 0,
            ends_by,
        });
        let lane = lane.clone();
        Ok(Some(Place { lane, id }))
    }

    /// Takes the first calls for a task: all, or as many as make it and another one serve equally many, within
    /// `bounds`. If there are none, the task ends, and `known` is kept for the next one. `None` also if another task has
    /// taken its place.
    pub(super) fn take(
        &self,
        Place { lane, id }: &Place,
        bounds: &RangeInclusive<usize>,
        ends_by: Tick,
        known: &mut Option<Known>,
    ) -> Option<Vec<Waiting<A>>> {
        let mut shard = self.shard(lane);
        let line = shard.lines.get_mut(lane)?;
        let waiting = line.calls.len();
        let other = line.tasks.iter().find(|task| task.id != *id);
        let even = other.map_or(waiting, |other| (waiting + other.serves).div_ceil(2));
        let count = waiting.min(even.max(*bounds.start()).min(*bounds.end()));
        let task = line.task(*id)?;
        if waiting > 0 {
            (task.serves, task.ends_by) = (count, ends_by);
            return Some(line.calls.drain(..count).collect());
        }
        line.tasks.retain(|task| task.id != *id);
        if line.is_idle() {
            shard.lines.remove(lane);
        }
        if let (Lane::Key(key), Some(known), 1..) = (lane, known.take(), self.cached) {
            if shard.records.len() >= self.cached.div_ceil(8) {
                // All at once: those that are used come back.
                shard.records.clear();
            }
            shard.records.insert(Arc::clone(key), known);
        }
        None
    }

    /// Calls on some keys that have come since, for a task that has some already.
    pub(super) fn take_of(
        &self,
        place: &Place,
        keys: &HashSet<&str, Seeded>,
        ends_by: Tick,
    ) -> Vec<Waiting<A>> {
        let mut shard = self.shard(&place.lane);
        let Some(line) = shard.lines.get_mut(&place.lane) else {
            return Vec::new();
        };
        if let Some(task) = line.task(place.id) {
            task.ends_by = ends_by;
        }
        let calls = std::mem::take(&mut line.calls).into_iter();
        let (taken, left) = calls.partition(|call| keys.contains(&*call.key));
        line.calls = left;
        taken.into()
    }

    /// The number of calls that are queued in a lane.
    pub(super) fn waiting(&self, lane: &Lane) -> usize {
        let shard = self.shard(lane);
        shard.lines.get(lane).map_or(0, |line| line.calls.len())
    }

    /// The last record of a key that had no calls.
    pub(super) fn take_known(&self, lane: &Lane) -> Option<Known> {
        let Lane::Key(key) = lane else {
            return None;
        };
        self.shard(lane).records.remove(key)
    }

    /// Ends a task, if it has not ended: the calls of its lane fail.
    pub(super) fn abandon(&self, Place { lane, id }: &Place) {
        let mut shard = self.shard(lane);
        let is_its = |line: &mut LaneQueue<A>| line.task(*id).is_some();
        let is_its = shard.lines.get_mut(lane).is_some_and(is_its);
        let line = is_its.then(|| shard.lines.remove(lane));
        // Its callers wake up after the lock is released.
        drop(shard);
        drop(line);
    }

    fn shard(&self, lane: &Lane) -> MutexGuard<'_, LaneShard<A>> {
        let shard = self.hasher.hash_one(lane) % SHARDS;
        lock(&self.shards[usize::try_from(shard).unwrap_or_default()])
    }
}
