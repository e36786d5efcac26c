//! What a full table does with a new key.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::backend::Stats;
use crate::clock::Tick;
use crate::store::events::OverflowLog;

/// What a full table does with a new key.
///
/// A key may use 96 slots, which its hash determines, and in a small table it may use fewer. The table is full for
/// a key if each of these slots holds the state of another key that has not expired. [`Stats`](crate::store::Stats) counts how often that
/// happens.
///
/// # What a flood of keys can do
/// All keys of a table together never get more than one limit per slot, with any policy and however
/// many keys there are. Each admission is counted in a slot, and that usage is kept until it expires: a new key in a
/// full table takes over the usage of the key that it replaces. [`reset`](crate::Local::reset) and refunds are the
/// exceptions.
///
/// For a single key, a flood that fills its slots can do this until the states of the flood expire:
/// - A new key is denied, or has less left than an unused key.
/// - With [`EvictLeast`](Self::EvictLeast), a key that is not being denied loses its slot. When it
///   returns it is a new key: it takes over the usage of another key, which may be more or less
///   than its own. So a client that can flood the table can exchange its usage for that of the least
///   used key among 96.
/// - A key that is being denied loses its slot only if all of these keys are being denied. For that
///   the flood needs two requests per slot: one to use it and one that is denied.
/// - With [`Deny`](Self::Deny), a key that has a slot keeps it.
///
/// A larger capacity makes a flood more expensive. The keys of a flood have to come from
/// somewhere: a limit per network in front of the limit per address bounds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Overflow {
    /// Gives the new key the slot of another key, and that key's usage with it.
    ///
    /// The candidates are the keys in the slots that the new key may use. Among them, the key is replaced
    /// whose state expires first and that is not being denied. A key is being denied if its last request was
    /// denied, whatever its cost, or if a cost of 1 would be denied now. If all candidates are being
    /// denied, it is the one whose state expires first.
    ///
    /// The key that is replaced is a new key when it returns. If the new key's request is denied
    /// because of the usage that it took over, nothing is stored and the other key keeps its slot.
    #[default]
    EvictLeast,
    /// Denies the new key until a slot becomes free.
    Deny,
}

/// What a table does with a key, and what it has lost because it was full, in numbers and in a log.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) overflow: Overflow,
    /// A step runs on a copy of the state.
    pub(super) is_user_code: bool,
    /// A key in its home line is decided there, by the algorithm of all.
    pub(super) is_quick: bool,
    lost: Lost,
    log: OverflowLog,
}

#[derive(Debug, Default)]
pub(super) struct Lost {
    evicted: AtomicU64,
    evicted_denied: AtomicU64,
    pub(super) denied: AtomicU64,
    pub(super) charges: AtomicU64,
}

impl Rules {
    pub(super) fn new(overflow: Overflow, is_user_code: bool) -> Self {
        Self {
            overflow,
            is_user_code,
            is_quick: !is_user_code,
            lost: Lost::default(),
            log: OverflowLog::default(),
        }
    }

    /// Counts one loss of this kind at `now`.
    pub(super) fn count(&self, kind: impl Fn(&Lost) -> &AtomicU64, now: Tick) {
        kind(&self.lost).fetch_add(1, Ordering::Relaxed);
        self.log.record(now, || self.losses());
    }

    pub(super) fn count_evicted(&self, was_denied: bool, now: Tick) {
        let denied = u64::from(was_denied);
        self.lost
            .evicted_denied
            .fetch_add(denied, Ordering::Relaxed);
        self.count(|lost| &lost.evicted, now);
    }

    /// The counters alone.
    pub(super) fn losses(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            evicted: read(&self.lost.evicted),
            evicted_denied: read(&self.lost.evicted_denied),
            denied: read(&self.lost.denied),
            lost_charges: read(&self.lost.charges),
            ..Stats::default()
        }
    }
}
