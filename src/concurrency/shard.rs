//! The entries of one shard, by the hash of the key.

use std::{collections::HashMap, hash::BuildHasherDefault, task::Waker};

use super::lease::Lease;
use super::line::{End, PermitLine};
use super::request::{PermitRequest, part_of};
use crate::queue::{PassThroughHasher, Place};

/// The map keeps the memory of this many entries when it is empty.
const KEPT: usize = 64;

#[derive(Default)]
pub(super) struct PermitShard {
    pub(super) entries: HashMap<u64, KeyPermits, BuildHasherDefault<PassThroughHasher>>,
}

/// The requests of one key, and its lease. An entry with neither is removed.
#[derive(Default)]
pub(super) struct KeyPermits {
    /// The units of all requests in flight, with those of waiters that were granted a permit and do
    /// not know it yet.
    pub(super) in_flight: u64,
    /// `None` until a request waits. If none is in flight in the fleet, none waits for long.
    pub(super) line: Option<Box<PermitLine>>,
    /// If this machine is one of a fleet that has the permits together.
    pub(super) lease: Option<Box<Lease>>,
}

impl PermitShard {
    /// Removes what is left of a key without requests.
    #[inline]
    pub(super) fn tidy(&mut self, id: u64) {
        let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.is_idle()) else {
            return;
        };
        entry.line = None;
        if !entry.is_kept() {
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
    /// Whether nothing is left of requests.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.waiting() == 0
    }

    /// How many requests wait.
    pub(super) fn waiting(&self) -> usize {
        self.line.as_ref().map_or(0, |line| line.len())
    }

    /// Ends the wait of the first or the last request. Returns the waker to call.
    pub(super) fn end(&mut self, place: Option<Place>, end: End) -> Option<Waker> {
        self.line.as_mut()?.remove(place?)?.end(end)
    }

    /// Whether it stays without requests.
    pub(super) fn is_kept(&self) -> bool {
        self.lease.is_some()
    }

    /// The units of other machines.
    pub(super) fn others(&self) -> u64 {
        self.lease.as_ref().map_or(0, |lease| lease.others)
    }

    /// How many units may be in flight here when a request that leaves `reserved` units free is one of them.
    pub(super) fn part(&self, limit: u64, reserved: u32) -> u64 {
        let part = part_of(limit, reserved);
        let lease = self.lease.as_ref();
        lease.map_or(part, |lease| lease.part(part))
    }

    /// What to wake when fewer units are in flight or wanted.
    pub(super) fn keeper(&self) -> Option<Waker> {
        self.lease.as_ref().map(|lease| lease.keeper.clone())
    }

    /// `limit` is the part that the request may use.
    pub(super) fn try_take(&mut self, request: PermitRequest, limit: u64) -> Result<u64, u64> {
        let line = self.line.as_ref();
        if line.is_some_and(|line| line.units_before(request.place()) > 0)
            || !self.has_room(request.units, limit)
        {
            return Err(self.in_flight);
        }
        self.in_flight += request.units;
        Ok(self.in_flight)
    }

    /// A request of more units than the limit has room when it is alone, or it would never go on after
    /// the limit has become lower. In a fleet others may be in flight elsewhere.
    pub(super) const fn has_room(&self, units: u64, limit: u64) -> bool {
        (self.in_flight == 0 && self.lease.is_none())
            || self.in_flight.saturating_add(units) <= limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_freed_when_an_eighth_is_in_use() {
        let mut shard = PermitShard::default();
        (0..1_000).for_each(|id| drop(shard.entries.entry(id).or_default().line.take()));
        (300..1_000).for_each(|id| shard.tidy(id));
        assert!(shard.entries.len() == 300 && shard.entries.capacity() > 500);
        (0..300).for_each(|id| shard.tidy(id));
        assert!(shard.entries.capacity() < 2 * KEPT);
    }
}
