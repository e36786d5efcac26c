//! Which keys of a machine are exchanged next.

use std::{ops::Bound, sync::Arc};

use super::node::Node;
use super::tracked::TrackedState;
use crate::algorithm::Portable;
use crate::clock::Tick;
use crate::store::{
    cas::report::Change,
    fleet::{PendingKey, Place, SentReport, Written},
};
use crate::sync::{Ordering, lock};

/// Which keys are exchanged, beside those that cannot wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Urgent,
    /// Those that were not exchanged in this round.
    Round,
    All,
}

/// A report to be sent. Without changes, it asks for the state of the key.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    pub(super) hash: u64,
    pub(super) name: Arc<str>,
    pub(super) sequence: u64,
    pub(super) changes: Arc<[Change]>,
}

impl<A: Portable> Node<A> {
    /// Begins a round, in which each listed key is exchanged once.
    pub(super) fn begin_round(&self) {
        *lock(&self.place) = Place::default();
        self.round.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes at most `most` reports to be sent, of keys whose exchange is not under way: those that
    /// cannot wait, and others as `due` says.
    pub(super) fn collect(&self, now: Tick, due: Due, most: usize) -> Vec<Outgoing> {
        let mut outgoing = self.collect_urgent(now, most);
        match due {
            Due::Urgent => {}
            Due::Round => {
                let round = self.round.load(Ordering::Relaxed);
                let mut place = lock(&self.place);
                self.collect_from(&mut place, now, round, most, &mut outgoing);
            }
            Due::All => {
                let every = u64::MAX;
                self.collect_from(&mut Place::default(), now, every, most, &mut outgoing);
            }
        }
        outgoing
    }

    fn collect_urgent(&self, now: Tick, most: usize) -> Vec<Outgoing> {
        let mut outgoing = Vec::new();
        let mut left = Vec::new();
        let urgent = std::mem::take(&mut *lock(&self.urgent_keys));
        for hash in urgent {
            let mut shard = self.pending.shard(hash);
            match shard.get_mut(&hash).filter(|key| key.is_urgent) {
                Some(key) if key.in_flight || outgoing.len() >= most => left.push(hash),
                Some(key) => outgoing.push(self.take_report(hash, key, now)),
                None => {}
            }
        }
        lock(&self.urgent_keys).append(&mut left);
        outgoing
    }

    /// Takes the reports of keys from `place` on that were not exchanged in `round`, and forgets those that
    /// were not used since.
    fn collect_from(
        &self,
        place: &mut Place,
        now: Tick,
        round: u64,
        most: usize,
        outgoing: &mut Vec<Outgoing>,
    ) {
        while let Some(mut shard) = self.pending.shard_at(place.shard) {
            let (mut idle, mut is_full) = (Vec::new(), false);
            let first = place.after.map_or(Bound::Unbounded, Bound::Excluded);
            for (&hash, key) in shard.range_mut((first, Bound::Unbounded)) {
                if outgoing.len() >= most {
                    is_full = true;
                    break;
                }
                place.after = Some(hash);
                if key.in_flight || key.round >= round {
                    continue;
                }
                if self.unlist_idle(hash, key, now) {
                    idle.push(hash);
                } else {
                    outgoing.push(self.take_report(hash, key, now));
                }
            }
            for hash in idle {
                shard.remove(&hash);
                self.pending.count_removed();
            }
            if is_full {
                return;
            }
            *place = Place {
                shard: place.shard + 1,
                after: None,
            };
        }
    }

    /// Whether a key was not used since its last exchange. Its state is then unlisted.
    fn unlist_idle(&self, hash: u64, key: &PendingKey, now: Tick) -> bool {
        if !key.is_idle() {
            return false;
        }
        let unlisted = self.table.at(hash, now, false, |_, state| {
            let is_idle = state.own.is_listed() && state.own.is_unused();
            if is_idle {
                state.own.unlist();
            }
            Written(is_idle)
        });
        matches!(unlisted, Ok(Written(true)))
    }

    fn take_report(&self, hash: u64, key: &mut PendingKey, now: Tick) -> Outgoing {
        key.in_flight = true;
        key.round = self.round.load(Ordering::Relaxed);
        if std::mem::take(&mut key.is_urgent) {
            self.urgent.fetch_sub(1, Ordering::Relaxed);
        }
        if key.sent.is_none() {
            let since = key.since;
            let taken = self.table.at(hash, now, false, |tracked, state| {
                let TrackedState { fleet, own } = state;
                let was_listed = own.is_listed();
                let taken = own.take(&tracked.algorithm, fleet, since, now);
                Written((taken, was_listed))
            });
            if let Ok(Written((taken, was_listed))) = taken {
                for change in taken.into_iter().flatten() {
                    self.keep(hash, key, change, now);
                }
                if !was_listed {
                    self.lost.fetch_add(1, Ordering::Relaxed);
                }
            }
            let mut changes = std::mem::take(&mut key.unsent);
            if key.is_early {
                changes.iter_mut().for_each(Change::make_present);
            }
            let changes = changes.into();
            let sequence = self.sequence.fetch_add(1, Ordering::Relaxed) + 1;
            key.sent = Some(SentReport { sequence, changes });
        }
        let sent = key.sent.clone().unwrap_or_default();
        Outgoing {
            hash,
            name: Arc::clone(&key.name),
            sequence: sent.sequence,
            changes: sent.changes,
        }
    }
}
