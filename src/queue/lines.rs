//! The lines of all keys.
//!
//! A request that is admitted at once reads one counter here. Only while requests wait does it do
//! more. The line of a key is found by a hash with a secret seed. A line exists while it has
//! waiters, so there are never more lines than waiting requests. Two keys with the same 64-bit hash
//! share a line.

use std::{
    fmt,
    hash::{BuildHasher, Hash, RandomState},
    task::Waker,
};

use super::entry::QueuePosition;
use super::guard::{LineGuard, Shards};
use super::outcome::WaitOutcome;
use crate::clock::Tick;
use crate::quota::Quota;

pub(crate) struct Lines {
    shards: Shards,
    hasher: RandomState,
}

impl Lines {
    pub(crate) fn new() -> Self {
        Self {
            shards: Shards::new(),
            hasher: RandomState::new(),
        }
    }

    /// Whether any request waits, for any key.
    #[inline]
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiting() > 0
    }

    /// The number of waiting requests of all keys.
    #[inline]
    pub(crate) fn waiting(&self) -> u64 {
        self.shards.waiting()
    }

    /// A number that changes with every refund that moves a line. If it is read before the limiter
    /// decides, it shows while the line is locked whether the decision is still current.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.shards.epoch()
    }

    /// Locks the line of `key`.
    pub(crate) fn lock_key<K: Hash + ?Sized>(&self, key: &K) -> LineGuard<'_> {
        self.lock_line(self.line_id(key))
    }

    /// Identifies the line of `key`.
    pub(crate) fn line_id<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Locks a line.
    pub(crate) fn lock_line(&self, line_id: u64) -> LineGuard<'_> {
        self.shards.lock_line(line_id)
    }

    /// Locks the line of `position`.
    pub(crate) fn lock_position(&self, position: &QueuePosition) -> LineGuard<'_> {
        self.shards.lock_line(position.line_id())
    }

    /// Returns what happens to the request at `position`, which is then done with the line. If it
    /// has to wait, returns the locked line, and the request will be woken by `waker`.
    pub(crate) fn poll_outcome(
        &self,
        position: &QueuePosition,
        waker: &Waker,
    ) -> Result<WaitOutcome, LineGuard<'_>> {
        if position.is_released() {
            return Ok(WaitOutcome::Released);
        }
        let line_id = position.line_id();
        let mut shard = self.shards.lock_shard(line_id);
        let Some(entry) = shard.get_mut(&line_id).filter(|one| one.owns(position)) else {
            return Ok(WaitOutcome::Released);
        };
        let mut stale_waker = None;
        let line = &mut entry.line;
        let Some(outcome) = line.poll_waiter(position.rank(), waker, &mut stale_waker) else {
            return Err(self.shards.guard(line_id, shard, stale_waker));
        };
        let removed = line.is_unused().then(|| shard.remove(&line_id));
        drop(shard);
        drop(stale_waker);
        drop(removed);
        Ok(outcome)
    }

    /// Locks all lines and calls `change`, which changes the quota. If it returns the old and the
    /// new quota, all waiters are rescheduled.
    pub(crate) fn reschedule<E>(
        &self,
        now: Tick,
        change: impl FnOnce() -> Result<Option<(Quota, Quota)>, E>,
    ) -> Result<(), E> {
        let mut shards = self.shards.lock_all();
        let changed = change()?;
        self.shards.advance_epoch();
        let Some((from, to)) = changed else {
            return Ok(());
        };
        let mut wakers = Vec::new();
        let mut changed = Vec::new();
        for (line_id, entry) in shards.iter_mut().flat_map(|shard| shard.iter_mut()) {
            let line = &mut entry.line;
            let before = line.len();
            line.reschedule(now, &from, &to, &mut wakers);
            self.shards.adjust_waiting(before, line.len());
            changed.push(*line_id);
        }
        drop(shards);
        wakers.into_iter().for_each(Waker::wake);
        for line_id in changed {
            self.shards.lock_line(line_id).refresh_timer();
        }
        Ok(())
    }

    /// Called when a timer of the line has fired.
    pub(crate) fn handle_timer(&self, line_id: u64, now: Tick) {
        self.shards.lock_line(line_id).handle_timer(now);
    }

    /// The moments granted in all lines.
    #[cfg(all(test, tower_throttle_loom))]
    pub(crate) fn slots(&self) -> Vec<Tick> {
        let mut slots = Vec::new();
        for shard in self.shards.lock_all() {
            slots.extend(shard.values().flat_map(|entry| entry.line.slots()));
        }
        slots
    }
}

/// Manual impl: the keys are not shown, and the lines would have to be locked.
impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines")
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}
