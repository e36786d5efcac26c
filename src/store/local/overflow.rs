//! What a full table does with a new key.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::backend::Losses;
use crate::clock::Tick;
use crate::store::events::OverflowLog;

/// What a full table does with a new key.
///
/// A table is full for a key if none of the slots that the key may use is free. A slot is free if
/// it is empty or if its state has expired, that is, if dropping the state changes no decision. A
/// key may use 80 to 256 slots, depending on the size of its state; in the smallest tables, it may
/// use all slots. [`Stats`] counts how often a table is full for a key.
///
/// # What a flood of keys can do
/// A flood cannot get around the limits with any policy. Each admission is counted in a slot, or in
/// the shared state, and that usage is kept until it expires: a new key in a full table takes over
/// the usage of the key that it replaces. All keys of a table together therefore never get more
/// than one limit per slot, even if there are many more keys than the
/// [`capacity`](crate::Local::capacity). While the table is full, a new key is denied or has less
/// left than an unused key. A larger capacity avoids this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Overflow {
    /// Gives the new key the slot of another key, and that key's usage with it.
    ///
    /// The key that is replaced is the one whose state expires first among the keys that are not
    /// over their limit. It is treated as a new key when it returns. If all keys are over their
    /// limit, the new key is denied. If the new key's request is denied because of the usage that
    /// it took over, nothing is stored and the other key keeps its slot. At most 16 sets of slots
    /// are searched, so that a flood of new keys costs little.
    #[default]
    EvictLeast,
    /// Denies the new key until a slot becomes free.
    Deny,
    /// Lets all keys without a slot share one state.
    Shared,
}

/// Sizes and counters of a [`Local`](crate::Local).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The capacity that was set, in keys.
    pub capacity: usize,
    /// The number of slots, slightly more than the capacity.
    pub slots: usize,
    /// The number of slots that are in use: those with a state that has not expired.
    ///
    /// Exact for up to 4,096 sets, which is a capacity of 11,000 keys, or 14,000 or 28,000 if a
    /// state takes two or four words. In a larger table it is an estimate from 4,096 sets, which is
    /// within 2 % of [`slots`](Self::slots) (five standard deviations). Computing it takes less
    /// than a millisecond, whatever the size of the table.
    pub live: usize,
    /// The bytes of the table, which are allocated at once, when it is first used.
    pub table_bytes: usize,
    /// The number of states that do not fit a slot and are stored outside the table.
    pub outside: usize,
    /// The bytes of these states and of the lists that hold them: a multiple of 64 per state.
    ///
    /// A log grows with its use. Beyond three entries it takes 16 bytes per admission in its
    /// window, up to its limit, and up to twice that while it grows. Computing this number reads
    /// each of these states.
    pub outside_bytes: usize,
    /// The most bytes that the table and the states outside of it can take together.
    ///
    /// This equals [`table_bytes`](Self::table_bytes) if all states fit their slots. A log whose
    /// limit is lowered may take more until its older entries have expired.
    pub most_bytes: usize,
    /// Keys that were evicted before their states had expired.
    pub evicted: u64,
    /// Evicted keys that were over their limit.
    pub evicted_denied: u64,
    /// Requests that were denied because the table was full.
    pub denied: u64,
    /// Requests that were decided by the state shared by all keys without a slot.
    pub shared: u64,
}

/// What a full table lost so far, in numbers and in a log.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) evicted: AtomicU64,
    pub(super) evicted_denied: AtomicU64,
    pub(super) denied: AtomicU64,
    pub(super) shared: AtomicU64,
    log: OverflowLog,
}

impl Counters {
    /// Counts one loss of this kind at `now`.
    pub(super) fn count(&self, kind: impl Fn(&Self) -> &AtomicU64, now: Tick) {
        kind(self).fetch_add(1, Ordering::Relaxed);
        self.log.record(now, || self.losses());
    }

    pub(super) fn losses(&self) -> Losses {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Losses {
            evicted: read(&self.evicted),
            evicted_denied: read(&self.evicted_denied),
            denied: read(&self.denied),
            shared: read(&self.shared),
        }
    }

    pub(super) fn fill(&self, stats: &mut Stats) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        stats.evicted = read(&self.evicted);
        stats.evicted_denied = read(&self.evicted_denied);
        stats.denied = read(&self.denied);
        stats.shared = read(&self.shared);
    }
}
