//! What a machine reports, and how it goes on with the reply.

use std::{ops::Bound, sync::Arc, time::Duration};

use super::find::denying;
use super::held::{Held, MAX_ROOM};
use super::key::{LeaseKey, SentLease};
use super::node::Node;
use super::plan::stop_of;
use crate::algorithm::Portable;
use crate::clock::{Tick, nanos};
use crate::error::StoreError;
use crate::store::{
    cas::{
        lease::{LeaseReply, LeaseReport},
        report::Change,
    },
    fleet::{Place, Shard, Written},
};
use crate::sync::{Ordering, lock};

/// Which keys are exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Those that cannot wait.
    Urgent,
    /// Those whose time has come.
    Round,
    /// All. Their units are given back.
    Return,
}

/// A report to be sent.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    pub(super) hash: u64,
    pub(super) name: Arc<str>,
    pub(super) sent: SentLease,
}

impl<A: Portable> Node<A> {
    /// Takes at most `most` reports to be sent, of keys whose exchange is not under way.
    pub(super) fn collect(&self, now: Tick, due: Due, most: usize) -> Vec<Outgoing> {
        match due {
            Due::Urgent => self.collect_urgent(now, most),
            Due::Round | Due::Return => self.collect_from(Place::default(), now, due, most).0,
        }
    }

    /// Takes at most `most` reports: those that cannot wait, and those whose time has come, from `next`
    /// on. A tick begins with the first key.
    pub(super) fn collect_due(
        &self,
        now: Tick,
        next: &mut Option<Place>,
        is_tick: bool,
        most: usize,
    ) -> Vec<Outgoing> {
        if is_tick {
            self.forget_empty(now);
            next.get_or_insert_default();
        }
        let mut outgoing = self.collect(now, Due::Urgent, most);
        if let Some(first) = *next {
            let most = most - outgoing.len();
            let (due, place) = self.collect_from(first, now, Due::Round, most);
            outgoing.extend(due);
            *next = place;
        }
        outgoing
    }

    fn collect_urgent(&self, now: Tick, most: usize) -> Vec<Outgoing> {
        let mut outgoing = Vec::new();
        while outgoing.len() < most {
            let Some(hash) = lock(&self.urgent).pop_front() else {
                break;
            };
            let mut shard = self.keys.shard(hash);
            let key = shard.get_mut(&hash);
            let is_due = |key: &&mut LeaseKey| key.pending.is_urgent && !key.pending.in_flight;
            if let Some(key) = key.filter(is_due) {
                outgoing.push(self.take_report(hash, key, now, false));
            }
        }
        outgoing
    }

    /// Takes the reports of keys from `place` on, and forgets those that have nothing to report or hold.
    /// Returns the place of the next one as well, if there are more than `most`.
    pub(super) fn collect_from(
        &self,
        mut place: Place,
        now: Tick,
        due: Due,
        most: usize,
    ) -> (Vec<Outgoing>, Option<Place>) {
        let (mut outgoing, mut is_full) = (Vec::new(), false);
        while let Some(mut shard) = self.keys.shard_at(place.shard) {
            let mut empty = Vec::new();
            let first = place.after.map_or(Bound::Unbounded, Bound::Excluded);
            for (&hash, key) in shard.range_mut((first, Bound::Unbounded)) {
                let returns_all = due == Due::Return && !key.pending.in_flight;
                if returns_all || self.is_due(key, now) {
                    if outgoing.len() >= most {
                        is_full = true;
                        break;
                    }
                    self.settle(hash, key, now);
                    if key.is_empty() {
                        empty.push(hash);
                    } else {
                        let is_idle = key.used == 0 && key.pending.waiters.is_empty();
                        let returns = returns_all || is_idle;
                        outgoing.push(self.take_report(hash, key, now, returns));
                    }
                }
                place.after = Some(hash);
            }
            for hash in empty {
                self.forget(&mut shard, hash);
            }
            if is_full {
                return (outgoing, Some(place));
            }
            place = Place {
                shard: place.shard + 1,
                after: None,
            };
        }
        (outgoing, None)
    }

    /// Forgets the keys that have had nothing to report or hold for some time.
    pub(super) fn forget_empty(&self, now: Tick) {
        for mut shard in self.keys.shards() {
            let is_over = |key: &LeaseKey| key.is_empty() && self.is_due(key, now);
            let keys = shard.iter().filter(|(_, key)| is_over(key));
            let empty: Vec<_> = keys.map(|(&hash, _)| hash).collect();
            for hash in empty {
                self.forget(&mut shard, hash);
            }
        }
    }

    fn forget(&self, shard: &mut Shard<LeaseKey>, hash: u64) {
        shard.remove(&hash);
        self.keys.count_removed();
    }

    /// Whether the time of the next exchange has come, and none is under way. A clock that was set back
    /// delays it by at most a renewal.
    fn is_due(&self, key: &LeaseKey, now: Tick) -> bool {
        let elapsed = now.as_nanos().abs_diff(key.exchanged_at.as_nanos());
        let has_come = elapsed >= nanos(self.settings.renewal());
        !key.pending.in_flight && (key.sent.is_some() || has_come)
    }

    /// What is to be sent of a key. If the machine `returns` the lease, it stops using it at once.
    fn take_report(&self, hash: u64, key: &mut LeaseKey, now: Tick, returns: bool) -> Outgoing {
        key.pending.in_flight = true;
        key.sent_at = now;
        key.suspensions = self.suspensions.load(Ordering::Relaxed);
        self.settle(hash, key, now);
        if key.sent.is_none() {
            if returns {
                self.set_held(hash, now, Held::default());
                (key.in_table, key.reserve) = (0, 0);
            }
            let elapsed = now.since(key.exchanged_at);
            key.chunk.adapt(key.used, elapsed, &self.settings);
            key.used = 0;
            key.has_urgent_change = false;
            let mut changes = std::mem::take(&mut key.pending.unsent);
            let dropped = std::mem::take(&mut key.pending.dropped);
            if key.pending.is_early {
                changes.iter_mut().for_each(Change::make_present);
            }
            let wanted = if returns {
                0
            } else {
                key.chunk.size.saturating_add(key.waiting)
            };
            key.sent = Some(SentLease {
                sequence: self.sequence.fetch_add(1, Ordering::Relaxed) + 1,
                changes: changes.into(),
                leased: std::mem::take(&mut key.leased).saturating_sub(dropped),
                kept: key.left(),
                wanted,
                needed: key.needed,
                may_be_stored: false,
            });
        }
        // A report that is sent again is followed by one of the changes made since.
        key.pending.is_urgent = key.has_urgent_change;
        self.release(hash, key, now);
        let (name, sent) = (Arc::clone(&key.pending.name), key.sent.clone());
        let sent = sent.unwrap_or_else(SentLease::nothing);
        Outgoing { hash, name, sent }
    }

    /// The report as the store gets it.
    pub(super) fn report<'a>(&self, outgoing: &'a Outgoing, now: Tick) -> LeaseReport<'a> {
        let settings = &self.settings;
        let SentLease {
            sequence,
            ref changes,
            leased,
            kept,
            wanted,
            needed,
            may_be_stored: _,
        } = outgoing.sent;
        LeaseReport {
            node: self.id,
            sequence,
            changes,
            leased,
            kept,
            wanted,
            needed,
            life: settings.life + settings.margin(self.clock.may_differ()),
            present_since: Tick::from_nanos(
                now.as_nanos().saturating_sub(nanos(settings.presence())),
            ),
            clocks_differ: self.clock.may_differ(),
        }
    }

    /// Ends an exchange: goes on with what the store has granted, and from the state that it holds.
    pub(super) fn adopt(&self, hash: u64, now: Tick, reply: &LeaseReply<A::State>) {
        self.see_nodes(reply.nodes as u64);
        let mut shard = self.keys.shard(hash);
        let Some(key) = shard.get_mut(&hash) else {
            return;
        };
        key.pending.in_flight = false;
        if std::mem::take(&mut key.pending.is_early) {
            let unsent = key.pending.unsent.iter_mut();
            unsent.for_each(Change::make_present);
        }
        if key.pending.is_urgent {
            lock(&self.urgent).push_back(hash);
        }
        self.settle(hash, key, now);
        if reply.has_ended {
            key.forget_leased();
        }
        let is_returned = key.sent.take().is_some_and(|sent| sent.wanted == 0);
        let took = nanos(now.since(key.sent_at));
        let before = self.round_trip.load(Ordering::Relaxed);
        self.round_trip
            .store(before - before / 4 + took / 4, Ordering::Relaxed);
        (key.exchanged_at, key.pending.since) = (now, now);
        key.stop = stop_of(reply.lease.ends_at, &self.settings, self.clock.may_differ());
        // A late reply may be one of a lease that has ended. What was used since the report is not in it.
        // So may be one that waited while this machine was suspended.
        let was_suspended = key.suspensions != self.suspensions.load(Ordering::Relaxed);
        let units = if now < key.stop && !was_suspended {
            reply.lease.units
        } else {
            0
        };
        let left = units.saturating_sub(key.leased);
        key.low = self.low_mark(&key.chunk, left);
        let room = (left - key.low).min(MAX_ROOM);
        (key.in_table, key.reserve) = (room, left - room);
        // A reply is late, so the state may seem to have refilled already. Requests that have waited for
        // it would ask again and again.
        let round_trip = Duration::from_nanos(took).min(self.settings.tick());
        (key.left_in_store, key.asked_until) = (reply.left, now.plus(round_trip));
        let checked = now.plus(self.settings.renewal());
        key.checked_until = reply.next_end.map_or(checked, |end| end.min(checked));
        let (unsent, stop, checked_until) = (&key.pending.unsent, key.stop, key.checked_until);
        let adopted = self.table.at(hash, now, true, |leasing, state| {
            let algorithm = &leasing.algorithm;
            state.fleet = reply.state.clone();
            for change in unsent {
                change.apply(algorithm, &mut state.fleet, now);
            }
            state.own = if left > 0 {
                self.held(algorithm, &state.fleet, now, room, stop)
            } else {
                denying(algorithm, &state.fleet, now, checked_until)
            };
            Written(())
        });
        // Units that are not used are given back in the next exchange.
        key.is_to_return = was_suspended && reply.lease.units > 0;
        if adopted.is_err() {
            // There is no slot.
            key.is_to_return |= left > 0;
            (key.in_table, key.reserve) = (0, 0);
        }
        key.wake(&Ok(()));
        if is_returned && key.is_empty() {
            self.forget(&mut shard, hash);
        }
    }

    /// Ends an exchange whose outcome is not known. The same report is sent again.
    pub(super) fn fail(&self, hash: u64, error: &StoreError) {
        self.end_without_reply(hash, error, |key| {
            if let Some(sent) = &mut key.sent {
                sent.may_be_stored = true;
            }
        });
    }

    /// Ends an exchange that has not changed the store. If the store refuses the report, its changes are
    /// a part of the next one, unless an earlier exchange of the same report may have been executed.
    pub(super) fn refuse(&self, hash: u64, error: &StoreError) {
        self.end_without_reply(hash, error, |key| {
            // What came before a reset does not matter.
            let resets = key.pending.unsent.contains(&Change::Reset);
            let may_be_stored = key.sent.as_ref().is_some_and(|sent| sent.may_be_stored);
            if !error.is_transient() && (resets || !may_be_stored) {
                key.take_back();
            }
        });
    }

    fn end_without_reply(&self, hash: u64, error: &StoreError, end: impl FnOnce(&mut LeaseKey)) {
        let mut shard = self.keys.shard(hash);
        if let Some(key) = shard.get_mut(&hash) {
            // The next look tries again. At once, it would go on without a pause in an outage.
            (key.pending.in_flight, key.pending.is_urgent) = (false, false);
            end(key);
            key.wake(&Err(error.clone()));
        }
    }

    /// Stops using all leases, because the clock that they ended by has stood still. What is granted in
    /// exchanges that are under way is not used either.
    pub(super) fn drop_units(&self, now: Tick) {
        self.suspensions.fetch_add(1, Ordering::Relaxed);
        for mut shard in self.keys.shards() {
            for (&hash, key) in shard.iter_mut() {
                key.stop = Tick::ZERO;
                self.settle(hash, key, now);
            }
        }
    }

    /// Adopts a number of machines that an exchange has seen.
    fn see_nodes(&self, seen: u64) {
        if self.settings.nodes.is_none() && self.nodes.swap(seen, Ordering::Relaxed) != seen {
            // Shares exist for every number of machines.
            let _ = self.set_share(&self.algorithm(), seen);
        }
    }

    fn set_held(&self, hash: u64, now: Tick, held: Held) {
        let _ = self.table.at(hash, now, false, |_, state| {
            state.own = held;
            Written(())
        });
    }
}

impl SentLease {
    /// A report of nothing, which no machine sends.
    fn nothing() -> Self {
        Self {
            sequence: 0,
            changes: Arc::default(),
            leased: 0,
            kept: 0,
            wanted: 0,
            needed: 0,
            may_be_stored: false,
        }
    }
}
