//! What a full table does with a new key.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::algorithm::Algorithm;
use crate::backend::Losses;
use crate::clock::Tick;
use crate::error::ConfigError;
use crate::store::events::OverflowLog;

/// What a full table does with a new key.
///
/// A key may use 96 slots, which its hash determines, or 64 if its state has 17 to 24 bytes. In a small
/// table it may use fewer, and in the smallest ones all. The table is full for a key if each of these
/// slots holds the state of another key that has not expired. [`Stats`] counts how often that happens.
///
/// # What a flood of keys can do
/// All keys of a table together never get more than one limit per slot, with any policy and however
/// many keys there are. Each admission is counted in a slot, or in the shared state, and that usage
/// is kept until it expires: a new key in a full table takes over the usage of the key that it
/// replaces. [`reset`](crate::Local::reset) and refunds are the exceptions.
///
/// For a single key, a flood that fills its slots can do this until the states of the flood expire:
/// - A new key is denied, or has less left than an unused key.
/// - With [`EvictLeast`](Self::EvictLeast), a key that is not being denied loses its slot. When it
///   returns it is a new key: it takes over the usage of another key, which may be more or less
///   than its own. So a client that can flood the table can exchange its usage for that of the least
///   used key among 96.
/// - A key that is being denied loses its slot only if all of these keys are being denied. For that
///   the flood needs two requests per slot: one to use it and one that is denied.
/// - With [`Deny`](Self::Deny) and [`Shared`](Self::Shared), a key that has a slot keeps it.
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
    /// Lets all keys without a slot share one state. A [`Lockout`](crate::Lockout) refuses it.
    Shared,
}

/// Refuses to let keys share a state that is about one of them.
pub(super) fn may_overflow<A: Algorithm>(
    algorithm: &A,
    overflow: Overflow,
) -> Result<(), ConfigError> {
    if overflow == Overflow::Shared && algorithm.capabilities().is_about_one_key {
        return Err(ConfigError::Unsupported {
            what: "a lockout in a table whose keys may share a state (Overflow::Shared)",
            instead: "use Overflow::EvictLeast or Overflow::Deny",
        });
    }
    Ok(())
}

/// Sizes and counters of a [`Local`](crate::Local).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The capacity that was set, in keys.
    pub capacity: usize,
    /// The number of slots, at least a fifth more than the capacity.
    pub slots: usize,
    /// The number of slots that are in use: those with a state that has not expired.
    ///
    /// Exact for a capacity of up to 26,000 keys. In a larger table it is an estimate from at least 8,192
    /// lines of slots, which is within 2 % of [`slots`](Self::slots) (four standard deviations). Computing it
    /// takes about a millisecond, whatever the size of the table.
    pub live: usize,
    /// The bytes of the table, which are allocated at once, when it is first used.
    pub table_bytes: usize,
    /// The number of states that are stored outside the table: all or none, by their type.
    pub outside: usize,
    /// The most bytes that the table and the states outside of it can take together.
    ///
    /// This equals [`table_bytes`](Self::table_bytes) if no state is stored outside. A log whose
    /// limit is lowered may take more until its older entries have expired.
    pub most_bytes: usize,
    /// What was lost because the table was full.
    pub losses: Losses,
}

/// What a full table lost so far, in numbers and in a log.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) evicted: AtomicU64,
    pub(super) evicted_denied: AtomicU64,
    pub(super) denied: AtomicU64,
    pub(super) shared: AtomicU64,
    pub(super) lost_charges: AtomicU64,
    log: OverflowLog,
}

impl Counters {
    /// Counts one loss of this kind at `now`.
    pub(super) fn count(&self, kind: impl Fn(&Self) -> &AtomicU64, now: Tick) {
        kind(self).fetch_add(1, Ordering::Relaxed);
        self.log.record(now, || self.losses());
    }

    pub(super) fn count_evicted(&self, was_denied: bool, now: Tick) {
        let denied = u64::from(was_denied);
        self.evicted_denied.fetch_add(denied, Ordering::Relaxed);
        self.count(|counters| &counters.evicted, now);
    }

    pub(super) fn losses(&self) -> Losses {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Losses {
            evicted: read(&self.evicted),
            evicted_denied: read(&self.evicted_denied),
            denied: read(&self.denied),
            shared: read(&self.shared),
            lost_charges: read(&self.lost_charges),
        }
    }
}
