//! The state of one key: its failures and its last block.

use super::super::fields::Fields;
use super::super::timestamps::Timestamps;
use crate::clock::Tick;

/// The most blocks that are counted: the length of any block has reached its maximum by then.
const MAX_LEVEL: u32 = 63;

/// The most late attempts of which a refund is found. They are as many as there are threads that
/// decide on a key at once, unless the clock steps back.
const MOST_LATE: usize = 64;

/// The state of a key under [`Lockout`](super::Lockout).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockoutState {
    /// The attempts that were not refunded, as they were at `seen`. If there are as many as start a
    /// block, it started at `seen`.
    attempts: Timestamps,
    /// How many blocks have ended since the key was forgotten, without the present one.
    pub(super) level: u32,
    /// When the last of these blocks ended, or when a ban ends; 0 if there was none.
    pub(super) until: u64,
    /// The moment of the newest attempt, even if that was refunded. An older `now` counts as this
    /// moment, because what has expired by then is gone.
    pub(super) seen: u64,
    /// The newest of the attempts that were counted at a later moment than theirs.
    late: Vec<Late>,
}

/// An attempt whose `now` was older than the newest one, because another thread was faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Late {
    /// Its `now`, which its receipt has.
    taken_at: Tick,
    /// The moment at which it counts.
    at: Tick,
}

impl LockoutState {
    /// How many attempts count, apart from the first `gone` moments.
    pub(super) fn used(&self, gone: usize) -> u64 {
        self.attempts.total_from(gone)
    }

    /// The number of distinct moments.
    pub(super) fn len(&self) -> usize {
        self.attempts.len()
    }

    /// How many moments are at least `period` old.
    pub(super) fn expired(&self, now: u64, period: u64) -> usize {
        self.attempts
            .partition_point(|entry| entry.at.as_nanos() + period <= now)
    }

    /// The newest moment that still counts.
    pub(super) fn newest(&self) -> Option<u64> {
        self.attempts.back().map(|entry| entry.at.as_nanos())
    }

    /// The moment of the attempt that completes `cost`, counted from the first one after `gone`
    /// moments.
    pub(super) fn moment_of(&self, gone: usize, cost: u64) -> u64 {
        let moment = self.attempts.completes(gone, cost);
        moment.map_or(0, Tick::as_nanos)
    }

    /// Writes down what time has changed.
    pub(super) fn enter(&mut self, level: u32, until: u64, expired: usize) {
        self.level = level;
        self.until = until;
        if expired > 0 {
            self.attempts.remove_front(expired);
            let oldest = self.attempts.front().map(|entry| entry.at);
            self.late
                .retain(|late| oldest.is_some_and(|oldest| late.at >= oldest));
        }
    }

    /// Counts attempts at `now`.
    pub(super) fn push(&mut self, now: Tick, cost: u64) {
        let at = Tick::from_nanos(self.seen.max(now.as_nanos()));
        self.seen = at.as_nanos();
        if now < at {
            if self.late.len() >= MOST_LATE {
                self.late.remove(0);
            }
            self.late.push(Late { taken_at: now, at });
        }
        if self.newest() == Some(self.seen) {
            self.add_to_newest(cost);
        } else {
            self.attempts.push_back(at, cost);
        }
    }

    pub(super) fn add_to_newest(&mut self, cost: u64) {
        if let Some(newest) = self.attempts.back() {
            let held = self.attempts.newest_cost();
            self.attempts.replace_back(newest.at, held + cost);
        }
    }

    /// Frees `cost` of the attempts up to `taken_at`, newest first. The first `gone` moments stay.
    pub(super) fn free(&mut self, taken_at: Tick, gone: usize, cost: u64) {
        let is_own = |late: &Late| cost > 0 && late.taken_at == taken_at;
        let late = self.late.iter().position(is_own);
        let taken_at = late.map_or(taken_at, |late| self.late.remove(late).at);
        self.attempts.take_back(gone, taken_at, cost);
    }

    /// Drops the oldest attempts, so that at most `count` are left.
    pub(super) fn keep_newest(&mut self, count: u64) {
        if self.used(0) <= count {
            return;
        }
        let mut newest = Vec::new();
        let mut left = count;
        while let Some(last) = self.attempts.back().filter(|_| left > 0) {
            let kept = self.attempts.newest_cost().min(left);
            newest.push((last.at, kept));
            left -= kept;
            self.attempts.pop_back();
        }
        self.attempts = Timestamps::default();
        for (at, kept) in newest.into_iter().rev() {
            self.attempts.push_back(at, kept);
        }
    }

    /// Blocks the key until `end`, after `level` blocks. What was counted before is dropped.
    pub(super) fn block_until(&mut self, level: u32, end: u64) {
        self.level = level.min(MAX_LEVEL);
        self.until = end;
        self.attempts = Timestamps::default();
        self.late = Vec::new();
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.attempts.heap_bytes() + self.late.capacity() * size_of::<Late>()
    }

    pub(super) fn max_heap_bytes(limit: u64) -> usize {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Timestamps::max_heap_bytes(limit).saturating_add(MOST_LATE * size_of::<Late>())
    }

    /// The numbers, then the attempts, oldest first: how much later than the one before, and how many.
    pub(super) fn list(&mut self, fields: &mut Fields<'_>) {
        let mut level = u64::from(self.level);
        fields.u64(&mut level);
        fields.require(level <= u64::from(MAX_LEVEL));
        self.level = u32::try_from(level).unwrap_or(MAX_LEVEL);
        fields.moment(&mut self.until);
        fields.moment(&mut self.seen);
        self.attempts.list(fields);
        let is_seen = self.newest().is_none_or(|newest| newest <= self.seen);
        fields.require(is_seen);
        self.list_late(fields);
    }

    fn list_late(&mut self, fields: &mut Fields<'_>) {
        let listed = std::mem::take(&mut self.late);
        let mut len = listed.len() as u64;
        fields.u64(&mut len);
        fields.require(len <= MOST_LATE as u64);
        let mut listed = listed.into_iter();
        for _ in 0..len {
            if fields.has_failed() {
                return;
            }
            let late = listed.next();
            let mut taken_at = late.map_or(0, |late| late.taken_at.as_nanos());
            let mut at = late.map_or(0, |late| late.at.as_nanos());
            fields.moment(&mut taken_at);
            fields.moment(&mut at);
            fields.require(taken_at < at && at <= self.seen);
            self.late.push(Late {
                taken_at: Tick::from_nanos(taken_at),
                at: Tick::from_nanos(at),
            });
        }
    }
}

/// The number of blocks after one more.
pub(super) fn next_level(level: u32) -> u32 {
    (level + 1).min(MAX_LEVEL)
}
