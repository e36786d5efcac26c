//! What a full table does with a new key.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::backend::Losses;

/// What a full table does with a new key.
///
/// A table is full for a key if none of the slots that the key may use is free: no slot is empty, and
/// dropping any of the states would change a decision. A key may use up to 64 to 160 slots, all slots
/// of the smallest tables. [`Stats`] counts how often that happens.
///
/// # What a flood of keys can do
/// No policy admits without limit. Each admission is stored in a slot (or in the one shared state), and
/// nothing stored is dropped before its time. All keys of a table together therefore never get more
/// than one limit per slot, however many keys there are and however small the
/// [`capacity`](crate::Local::capacity) is. New keys are denied then, or have less left than unused keys;
/// a larger capacity is the remedy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Overflow {
    /// Gives the new key the slot of another key, together with what that key has used.
    ///
    /// The other key is the one whose state would expire first among those that are not being denied.
    /// It counts as a new key when it comes back. If all are being denied, the new key is denied as
    /// well. Only up to 16 sets of slots are searched, so that a flood costs little.
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
    /// The bytes of the table, which are allocated when it is built.
    pub table_bytes: usize,
    /// How many states do not fit a slot and are stored outside the table.
    pub outside: usize,
    /// The bytes of these states and of the lists that hold them: a multiple of 64 per state. A log
    /// grows with its use: beyond three entries it takes 16 bytes per admission in its window, at most
    /// its limit, and up to twice that while it grows. Computing this reads each of these states.
    pub outside_bytes: usize,
    /// The most bytes that the table and the states outside of it can take together. If all states
    /// fit their slots, these are the [`table_bytes`](Self::table_bytes). A log whose limit is lowered
    /// may take more until its older entries have expired.
    pub most_bytes: usize,
    /// How many keys lost their slot before their state had expired.
    pub evicted: u64,
    /// How many of these were being denied.
    pub evicted_denied: u64,
    /// How many requests were denied because the table was full.
    pub denied: u64,
    /// How many requests were decided by the shared state.
    pub shared: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) evicted: AtomicU64,
    pub(super) evicted_denied: AtomicU64,
    pub(super) denied: AtomicU64,
    pub(super) shared: AtomicU64,
}

impl Counters {
    pub(super) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
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
