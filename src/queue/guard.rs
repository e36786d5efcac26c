//! The locks of all lines, and one locked line.
//!
//! The lines are in shards, with a lock per shard. The owner of a [`LineGuard`] may call the limiter
//! while it holds the lock, so that the line and the limiter change together. Wakers are called and
//! dropped after the lock is released.
//!
//! # Timers
//! A line has an alarm for its next slot. A thread that changes the line sets it, if it would fire too
//! late, while it holds the lock. Its handler releases the waiters that are due in batches, and unlocks
//! the line after each.

use std::{
    collections::HashMap,
    hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState},
    mem,
    task::Waker,
    time::Duration,
};

use super::entry::{LineEntry, QueuePosition};
use super::line::Line;
use super::outcome::CostOutcome;
use super::{Alarm, Order, Precedence, now};
use crate::clock::Tick;
use crate::quota::Quota;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};

/// A power of two. Loom models need the same lock in each run, whatever the seed.
const SHARDS: u64 = if cfg!(all(test, tower_throttle_loom)) {
    1
} else {
    16
};

pub(super) type Shard = HashMap<u64, Box<LineEntry>, BuildHasherDefault<PassThroughHasher>>;

/// The lines of all keys, by the hash of the key.
pub(crate) struct Lines {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    waiting: AtomicU64,
    /// How often the limiter got a refund that moved a line. Changes while that line is locked.
    epoch: AtomicU64,
    /// Not 0 once a request has joined behind those of another level.
    has_levels: AtomicU64,
    /// Not 0 once a layer has the order [`Order::Newest`].
    has_newest: AtomicU64,
}

/// Returns what was written: the keys are hashes.
#[derive(Default)]
pub(crate) struct PassThroughHasher(u64);

impl Hasher for PassThroughHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl Lines {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            waiting: AtomicU64::new(0),
            epoch: AtomicU64::new(1),
            has_levels: AtomicU64::new(0),
            has_newest: AtomicU64::new(0),
        }
    }

    /// The number of waiting requests of all keys.
    #[inline]
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// A number that changes with every refund that moves a line. If it is read before the limiter
    /// decides, it shows while the line is locked whether the decision is still current.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Whether a new request with this order may take the place of one that waits.
    #[inline]
    pub(crate) fn may_shed(&self, order: Order) -> bool {
        let has_levels = || self.has_levels.load(Ordering::Relaxed) > 0;
        self.waiting() > 0 && (order == Order::Newest || has_levels())
    }

    /// Notes that a layer has this order. Others may share its lines.
    pub(crate) fn add_order(&self, order: Order) {
        if order == Order::Newest {
            self.has_newest.store(1, Ordering::Relaxed);
        }
    }

    /// Whether later requests may overtake one at `place`.
    pub(crate) fn may_overtake(&self, Precedence { order, level }: Precedence) -> bool {
        order == Order::Newest || level > 0 || self.has_newest.load(Ordering::Relaxed) > 0
    }

    /// Identifies the line of `key`.
    pub(crate) fn line_id<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        self.hasher.hash_one(key)
    }

    pub(super) fn advance_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::Release);
    }

    pub(super) fn adjust_waiting(&self, before: usize, after: usize) {
        let difference = (after as u64).wrapping_sub(before as u64);
        if difference != 0 {
            self.waiting.fetch_add(difference, Ordering::Relaxed);
        }
    }

    /// Locks a line.
    pub(crate) fn lock_line(&self, line_id: u64) -> LineGuard<'_> {
        self.guard(line_id, self.lock_shard(line_id), None)
    }

    pub(super) fn lock_shard(&self, line_id: u64) -> MutexGuard<'_, Shard> {
        // Other bits than those by which the shard's map finds the line.
        let shard = usize::try_from((line_id >> 32) % SHARDS).unwrap_or_default();
        lock(&self.shards[shard])
    }

    pub(super) fn lock_all(&self) -> Vec<MutexGuard<'_, Shard>> {
        self.shards.iter().map(lock).collect()
    }

    pub(super) fn guard<'a>(
        &'a self,
        line_id: u64,
        shard: MutexGuard<'a, Shard>,
        stale_waker: Option<Waker>,
    ) -> LineGuard<'a> {
        LineGuard {
            lines: self,
            line_id,
            shard: Some(shard),
            wakers: Vec::new(),
            is_due: false,
            stale_waker,
            removed_line: None,
        }
    }
}

/// The line of one key, locked.
pub(crate) struct LineGuard<'a> {
    lines: &'a Lines,
    line_id: u64,
    /// `Some` until the guard is dropped.
    shard: Option<MutexGuard<'a, Shard>>,
    /// To be woken after the lock is released.
    wakers: Vec<Waker>,
    /// Whether more waiters are due, to be released after the lock was released once.
    is_due: bool,
    /// To be dropped after the lock is released.
    stale_waker: Option<Waker>,
    removed_line: Option<Box<LineEntry>>,
}

impl LineGuard<'_> {
    fn entry(&self) -> Option<&LineEntry> {
        self.shard
            .as_deref()?
            .get(&self.line_id)
            .map(|entry| &**entry)
    }

    /// Whether the line has no waiter.
    pub(crate) fn is_empty(&self) -> bool {
        self.entry().is_none_or(|entry| entry.line.len() == 0)
    }

    /// Whether the request at `position` waits for its turn.
    pub(crate) fn is_waiting(&self, position: &QueuePosition) -> bool {
        let entry = self.entry().filter(|entry| entry.owns(position));
        entry.is_some_and(|entry| entry.line.contains(position.rank()))
    }

    /// How long after `now` the request at `position`, which is the last in line, will be released.
    /// `None` if it has been released.
    pub(crate) fn wait_of_last(&self, position: &QueuePosition, now: Tick) -> Option<Duration> {
        let entry = self.entry().filter(|entry| entry.owns(position))?;
        if !entry.line.contains(position.rank()) {
            return None;
        }
        let last = entry.line.last_slot()?;
        Some(Duration::from_nanos(
            last.as_nanos().saturating_sub(now.as_nanos()),
        ))
    }

    /// Whether no request is behind `position`.
    pub(crate) fn is_last(&self, position: &QueuePosition) -> bool {
        let entry = self.entry().filter(|entry| entry.owns(position));
        entry.is_none_or(|entry| entry.line.is_last(position.rank()))
    }

    /// Notes that the limiter got a refund that moved this line.
    pub(crate) fn advance_epoch(&self) {
        self.lines.advance_epoch();
    }

    /// Adds a request to which the limiter has granted the moment `slot`.
    pub(crate) fn join(
        &mut self,
        cost: u64,
        slot: Tick,
        place: Precedence,
        is_immediate: bool,
    ) -> QueuePosition {
        if place.level > 0 {
            self.lines.has_levels.store(1, Ordering::Relaxed);
        }
        let join = |line: &mut Line, _: &mut _, _: &mut _| {
            let rank = line.join(cost, slot, place);
            QueuePosition::new(line, rank, is_immediate)
        };
        let new = || Box::new(LineEntry::new(self.line_id));
        if let Some(shard) = self.shard.as_deref_mut() {
            shard.entry(self.line_id).or_insert_with(new);
        }
        self.update(join)
            .expect("the shard is locked until the guard is dropped")
    }

    /// Makes sure that the line has an alarm that fires for the caller. `waker` makes the waker that it
    /// calls, given the id of the line, for [`handle_timer`](super::Lines::handle_timer).
    pub(crate) fn ensure_alarm(&mut self, waker: impl FnOnce(u64) -> Waker) {
        let line_id = self.line_id;
        let alarm = self.update_entry(|entry| {
            let new = || Alarm::new(waker(line_id));
            entry.alarm.get_or_insert_with(new).serve_caller()
        });
        if alarm == Some(false) {
            self.refresh_timer();
        }
    }

    fn update_entry<T>(&mut self, change: impl FnOnce(&mut LineEntry) -> T) -> Option<T> {
        let entry = self.shard.as_deref_mut()?.get_mut(&self.line_id)?;
        Some(change(entry))
    }

    /// Releases all waiters that are due at `now`, after the alarm has fired.
    pub(super) fn handle_timer(&mut self, now: Tick) {
        let clear =
            |entry: &mut LineEntry| entry.alarm.iter_mut().for_each(|alarm| alarm.clear(now));
        self.update_entry(clear);
        self.release(now);
    }

    /// Releases all waiters that are due.
    pub(crate) fn release(&mut self, now: Tick) {
        self.update(|line, wakers, _| line.release(now, wakers));
    }

    /// Removes a request from the line, before or after it was released; see [`Line::remove`].
    pub(crate) fn leave(
        &mut self,
        position: &QueuePosition,
        cost: u64,
        quota: impl Fn() -> Option<Quota>,
    ) -> CostOutcome {
        let rank = position.rank();
        let entry = self.entry().filter(|entry| entry.owns(position));
        if entry.is_some_and(|entry| entry.line.contains(rank)) {
            return self
                .update(|line, _, stale| line.remove(rank, quota, stale))
                .unwrap_or(CostOutcome::Keep);
        }
        // It was released and is not going: the next waiter may go instead.
        self.apply_refund(cost, now(), quota)
    }

    /// Moves the line up by the refund of a request before it; see [`Line::apply_refund`].
    pub(crate) fn apply_refund(
        &mut self,
        cost: u64,
        now: Tick,
        quota: impl FnOnce() -> Option<Quota>,
    ) -> CostOutcome {
        self.update(|line, wakers, _| {
            let outcome = line.apply_refund(cost, now, quota);
            line.release(now, wakers);
            outcome
        })
        .unwrap_or(CostOutcome::Refund)
    }

    /// Moves the slots of all waiters earlier, and releases those that are then due.
    pub(crate) fn shift_earlier(&mut self, span: Duration, now: Tick) {
        self.update(|line, wakers, _| {
            line.shift_earlier(span);
            line.release(now, wakers);
        });
    }

    /// The costs of the waiters that [`shed`](Self::shed) removes; see [`Line::costs_to_shed`].
    pub(crate) fn costs_to_shed(
        &self,
        cost: u64,
        place: Precedence,
        quota: impl FnOnce() -> Option<Quota>,
    ) -> impl Iterator<Item = u64> {
        let costs = self
            .entry()
            .map(|entry| entry.line.costs_to_shed(cost, place, quota));
        costs.into_iter().flatten()
    }

    /// Removes a waiter to make room for a request of `cost`; see [`Line::shed`].
    pub(crate) fn shed(&mut self, cost: u64, wait: Duration, quota: impl Fn() -> Option<Quota>) {
        self.update(|line, wakers, _| {
            line.shed(cost, wait, quota, wakers);
        });
    }

    /// Removes the waiter that is released last, if all costs are `cost` and the new request goes before
    /// it. Returns its slot.
    pub(crate) fn shed_equal(
        &mut self,
        cost: u64,
        place: Precedence,
        wait: Duration,
    ) -> Option<Tick> {
        self.update(|line, wakers, _| line.shed_equal(cost, place, wait, wakers))
            .flatten()
    }

    /// Sets the alarm, if it would fire too late.
    pub(super) fn refresh_timer(&mut self) {
        self.update(|_, _, _| ());
    }

    /// Changes the line, if there is one: wakers to be woken go to the list, and one to be dropped to the
    /// option. A line that is unused then is removed.
    fn update<T>(
        &mut self,
        change: impl FnOnce(&mut Line, &mut Vec<Waker>, &mut Option<Waker>) -> T,
    ) -> Option<T> {
        let shard = self.shard.as_deref_mut()?;
        let LineEntry { line, alarm } = &mut **shard.get_mut(&self.line_id)?;
        let before = line.len();
        let changed = change(line, &mut self.wakers, &mut self.stale_waker);
        self.lines.adjust_waiting(before, line.len());
        if line.is_unused() {
            self.removed_line = shard.remove(&self.line_id);
        } else if let (Some(alarm), Some(next)) = (alarm, line.next_slot()) {
            self.is_due |= alarm.is_late_for(next) && !alarm.set(next);
        }
        Some(changed)
    }
}

impl Drop for LineGuard<'_> {
    fn drop(&mut self) {
        loop {
            self.shard = None;
            self.removed_line = None;
            mem::take(&mut self.wakers)
                .into_iter()
                .for_each(Waker::wake);
            if !mem::take(&mut self.is_due) {
                return;
            }
            self.shard = Some(self.lines.lock_shard(self.line_id));
            self.release(now());
        }
    }
}
