//! The lines of all keys.
//!
//! A request that is admitted at once reads one counter here. Only while requests wait does it do
//! more. The line of a key is found by a hash with a secret seed. A line exists while it has
//! waiters, so there are never more lines than waiting requests. Two keys with the same 64-bit hash
//! share a line.

use std::{fmt, hash::Hash, task::Waker};

use super::entry::QueuePosition;
use super::guard::{LineGuard, Lines};
use super::outcome::WaitOutcome;
use crate::clock::Tick;
use crate::quota::Quota;

impl Lines {
    /// Whether any request waits, for any key.
    #[inline]
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiting() > 0
    }

    /// Locks the line of `key`.
    pub(crate) fn lock_key<K: Hash + ?Sized>(&self, key: &K) -> LineGuard<'_> {
        self.lock_line(self.line_id(key))
    }

    /// Locks the line of `position`.
    pub(crate) fn lock_position(&self, position: &QueuePosition) -> LineGuard<'_> {
        self.lock_line(position.line_id())
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
        let mut shard = self.lock_shard(line_id);
        let Some(entry) = shard.get_mut(&line_id).filter(|one| one.owns(position)) else {
            return Ok(WaitOutcome::Released);
        };
        let mut stale_waker = None;
        let line = &mut entry.line;
        let Some(outcome) = line.poll_waiter(position.rank(), waker, &mut stale_waker) else {
            return Err(self.guard(line_id, shard, stale_waker));
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
        let mut shards = self.lock_all();
        let changed = change()?;
        self.advance_epoch();
        let Some((from, to)) = changed else {
            return Ok(());
        };
        let mut wakers = Vec::new();
        let mut changed = Vec::new();
        for (line_id, entry) in shards.iter_mut().flat_map(|shard| shard.iter_mut()) {
            let line = &mut entry.line;
            let before = line.len();
            line.reschedule(now, &from, &to, &mut wakers);
            self.adjust_waiting(before, line.len());
            changed.push(*line_id);
        }
        drop(shards);
        wakers.into_iter().for_each(Waker::wake);
        for line_id in changed {
            self.lock_line(line_id).refresh_timer();
        }
        Ok(())
    }

    /// Called when a timer of the line has fired.
    pub(crate) fn handle_timer(&self, line_id: u64, now: Tick) {
        self.lock_line(line_id).handle_timer(now);
    }

    /// The moments granted in all lines.
    #[cfg(all(test, tower_throttle_loom))]
    pub(crate) fn slots(&self) -> Vec<Tick> {
        let mut slots = Vec::new();
        for shard in self.lock_all() {
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
