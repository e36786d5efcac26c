//! What happens to a new key when no slot it may use can be forgotten.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::backend::Losses;

/// What a full table does with a key it has not seen.
///
/// Until then nothing is ever lost: an entry leaves by itself only when forgetting it changes no
/// decision. See [`Stats`] for how often it came to this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Overflow {
    /// Forgets another key: of those that are not being denied the one that would be forgotten
    /// soonest, which has least to lose. One that is being denied is forgotten only where all
    /// others are being denied as well.
    #[default]
    EvictLeast,
    /// Denies the new key, until the moment a slot becomes free.
    Deny,
    /// Lets all keys that have no slot share one state.
    Shared,
}

/// How a [`Local`](crate::Local) is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// How many keys it was made to hold.
    pub capacity: usize,
    /// The bytes of the table, all of them taken when it was made.
    pub table_bytes: usize,
    /// How many states do not fit a slot and stand outside the table.
    pub outside: usize,
    /// The bytes of these and of the lists that hold them, 64 or a multiple for each. A log grows
    /// to what is used of it: beyond three moments, 16 bytes for each admission in its window, at
    /// most as many as its limit, and at times as much again. Reading it looks at each of them.
    pub outside_bytes: usize,
    /// The most bytes that it can ever take, with a state outside for every slot. Of an algorithm
    /// whose states fit their slots it takes [`table_bytes`](Self::table_bytes) and no more. A log
    /// whose limit is lowered may have more until what it then remembers has left.
    pub most_bytes: usize,
    /// How many keys were forgotten before their time.
    pub evicted: u64,
    /// How many of those were being denied.
    pub evicted_denied: u64,
    /// How many requests were denied because their key found no slot.
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
