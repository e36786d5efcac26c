//! The entries of one shard, by the hash of the key.

use std::{collections::HashMap, task::Waker};

use foldhash::fast::FixedState;

use super::lease::Lease;
use super::request::KeyUsage;

/// The map keeps the memory of this many entries when it is empty.
const KEPT: usize = 64;

#[derive(Default)]
pub(super) struct PermitShard {
    pub(super) entries: HashMap<u64, KeyPermits, FixedState>,
}

/// The requests of one key, and its lease. An entry with neither is removed.
#[derive(Default)]
pub(super) struct KeyPermits {
    /// The units of all requests in flight, with those of waiters that have a permit and do not know it yet.
    pub(super) in_flight: u64,
    /// If this machine is one of a fleet that has the permits together.
    pub(super) lease: Option<Box<Lease>>,
}

impl PermitShard {
    /// Removes what is left of a key without requests.
    #[inline]
    pub(super) fn tidy(&mut self, id: u64) {
        let entry = self.entries.get(&id);
        if entry.is_some_and(|entry| entry.in_flight == 0 && entry.lease.is_none()) {
            self.remove(id);
        }
    }

    /// Frees memory when the map has become much smaller. That happens at most once per so many
    /// removals that it costs each of them next to nothing.
    fn remove(&mut self, id: u64) {
        let map = &mut self.entries;
        map.remove(&id);
        if map.capacity() > KEPT && map.len() < map.capacity() / 8 {
            map.shrink_to((map.capacity() / 4).max(KEPT));
        }
    }
}

impl KeyPermits {
    /// The units of other machines.
    pub(super) fn others(&self) -> u64 {
        self.lease.as_ref().map_or(0, |lease| lease.others)
    }

    /// What a request sees that may use `limit` units.
    pub(super) fn usage(&self, limit: u64) -> KeyUsage {
        let in_flight = self.in_flight.saturating_add(self.others());
        KeyUsage { in_flight, limit }
    }

    /// What to wake when fewer units are in flight or wanted.
    pub(super) fn keeper(&self) -> Option<Waker> {
        self.lease.as_ref().map(|lease| lease.keeper.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_freed_when_an_eighth_is_in_use() {
        let mut shard = PermitShard::default();
        (0..1_000).for_each(|id| drop(shard.entries.entry(id).or_default().lease.take()));
        (300..1_000).for_each(|id| shard.tidy(id));
        assert!(shard.entries.len() == 300 && shard.entries.capacity() > 500);
        (0..300).for_each(|id| shard.tidy(id));
        assert!(shard.entries.capacity() < 2 * KEPT);
    }
}
