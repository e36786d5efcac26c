//! One machine of a fleet: takes units ahead, uses them in memory, and keeps what it has to report.
//!
//! Nothing here waits or does I/O, and each function is told the time, so a simulation can run many
//! machines.

use std::{
    collections::VecDeque,
    hash::{BuildHasher, Hash, RandomState},
    sync::Arc,
    time::Duration,
};

use super::clock::LeaseClock;
use super::find::{Found, find_denial};
use super::held::{Held, Leasing, MAX_ROOM};
use super::key::LeaseKey;
use super::plan::{Chunk, Settings};
use crate::algorithm::{Inherit, Portable};
use crate::backend::{Backend, Losses};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::store::{
    cas::report::Change,
    fleet::{PendingKeys, Read, Shard, Slow, WhenCutOff, Written},
    local::Local,
};
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// The states of a machine.
pub(super) type MachineTable<A> = Local<Leasing<A>, LeaseClock>;

/// One machine of a fleet.
#[derive(Debug)]
pub(super) struct Node<A: Portable> {
    pub(super) table: MachineTable<A>,
    pub(super) keys: PendingKeys<LeaseKey>,
    /// A number that no other machine has, nor this one after a restart.
    pub(super) id: u64,
    /// The number of the last report.
    pub(super) sequence: AtomicU64,
    pub(super) settings: Settings,
    pub(super) clock: LeaseClock,
    /// Keys whose exchange cannot wait for the next look.
    pub(super) urgent: Mutex<VecDeque<u64>>,
    /// How many machines use the limit: as configured, or as of the last exchanges.
    pub(super) nodes: AtomicU64,
    /// This machine's share of the limit, for the time in which the store cannot be reached.
    share: Option<Local<A, LeaseClock>>,
    /// How often this machine was suspended.
    pub(super) suspensions: AtomicU64,
    /// How long an exchange takes, in nanoseconds.
    pub(super) round_trip: AtomicU64,
    /// Requests that were denied because too many keys have units.
    full: AtomicU64,
    /// Units that were reported as used, because the table had lost how many were.
    lost: AtomicU64,
}

impl<A: Portable> Node<A> {
    /// A machine whose table has room for the keys of the settings.
    pub(super) fn new(
        algorithm: A,
        settings: Settings,
        clock: &LeaseClock,
    ) -> Result<Self, ConfigError> {
        let nodes = settings.nodes.unwrap_or(1);
        let share = if settings.when_cut_off == WhenCutOff::Share {
            let mut share = algorithm.clone();
            A::take_share(&mut share, nodes)?;
            let share = Local::new(share).with_clock(clock.clone());
            Some(share.try_capacity(settings.capacity)?)
        } else {
            None
        };
        let table = Local::new(Leasing::new(algorithm)).with_clock(clock.clone());
        Ok(Self {
            table: table.try_capacity(settings.capacity)?,
            keys: PendingKeys::new(),
            id: RandomState::new().hash_one(0),
            sequence: AtomicU64::new(0),
            settings,
            clock: clock.clone(),
            urgent: Mutex::default(),
            nodes: AtomicU64::new(nodes),
            share,
            suspensions: AtomicU64::new(0),
            round_trip: AtomicU64::new(0),
            full: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        })
    }

    pub(super) fn algorithm(&self) -> A {
        self.table.algorithm().algorithm
    }

    /// Changes the algorithm. What was used stays used, and what is held may be used.
    pub(super) fn set_algorithm(&self, algorithm: &A) -> Result<(), ConfigError> {
        self.table
            .set_algorithm(Leasing::new(algorithm.clone()), Inherit::AsIs)?;
        self.set_share(algorithm, self.nodes())
    }

    pub(super) fn set_share(&self, algorithm: &A, nodes: u64) -> Result<(), ConfigError> {
        let Some(own) = &self.share else {
            return Ok(());
        };
        let mut share = algorithm.clone();
        A::take_share(&mut share, nodes)?;
        own.set_algorithm(share, Inherit::AsIs)
    }

    pub(super) fn hash<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        self.table.hash(key)
    }

    pub(super) fn nodes(&self) -> u64 {
        self.nodes.load(Ordering::Relaxed)
    }

    pub(super) fn full(&self) -> u64 {
        self.full.load(Ordering::Relaxed)
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    pub(super) fn losses(&self) -> Losses {
        <Local<_, _> as Backend<str>>::losses(&self.table)
    }

    /// Decides on a request for which the table has too few units, or that is the first in a while.
    pub(super) fn decide_slow(
        &self,
        hash: u64,
        name: impl FnOnce() -> Arc<str>,
        now: Tick,
        cost: u64,
    ) -> Slow {
        if cost == 0 {
            return Slow::Decided(self.peek(hash, now, 0));
        }
        let mut shard = self.keys.shard(hash);
        let Some(key) = self.listed(&mut shard, hash, name, now) else {
            self.full.fetch_add(1, Ordering::Relaxed);
            return Slow::Decided(self.table.deny_full(now.plus(self.settings.tick()), now));
        };
        self.settle(hash, key, now);
        let left = key.left();
        let is_checked = now < key.checked_until;
        let most = left.saturating_add(key.left_in_store);
        let is_refused = now < key.asked_until && cost > most;
        let refused_until = is_refused.then_some(key.asked_until);
        if let Some(after) = left.checked_sub(cost) {
            return Slow::Decided(self.use_held(hash, key, now, cost, after));
        }
        let found = self.table.at(hash, now, true, |leasing, state| {
            let algorithm = &leasing.algorithm;
            let own = (cost, left);
            find_denial(algorithm, state, now, own, is_checked, refused_until)
        });
        match found {
            Ok(Found::Denied(decision)) => {
                self.release(hash, key, now);
                Slow::Decided(decision)
            }
            Ok(Found::Unknown) => {
                self.release(hash, key, now);
                let receiver = key.wait(cost);
                if !key.pending.in_flight {
                    self.set_urgent(hash, key);
                }
                Slow::Wait(receiver)
            }
            Err(free) => Slow::Decided(self.table.deny_full(free, now)),
        }
    }

    /// Decides on a request with the units that this machine holds, if they are enough.
    pub(super) fn decide_held(&self, hash: u64, now: Tick, cost: u64) -> Option<Decision> {
        let mut shard = self.keys.shard(hash);
        let key = shard.get_mut(&hash).filter(|_| cost > 0)?;
        self.settle(hash, key, now);
        if let Some(after) = key.left().checked_sub(cost) {
            return Some(self.use_held(hash, key, now, cost, after));
        }
        self.release(hash, key, now);
        None
    }

    /// Uses units of a key whose units were taken out of the table, so that `after` are left.
    fn use_held(
        &self,
        hash: u64,
        key: &mut LeaseKey,
        now: Tick,
        cost: u64,
        after: u64,
    ) -> Decision {
        let is_last = key.pending.in_flight || after <= key.low;
        let reserve = if is_last { 0 } else { key.low };
        let room = after - reserve;
        let decided = self.table.at(hash, now, true, |leasing, state| {
            let algorithm = &leasing.algorithm;
            let decision = algorithm.decide(&mut state.fleet, now, cost);
            if !decision.is_denied() {
                state.own = self.held(algorithm, &state.fleet, now, room, key.stop);
            }
            decision
        });
        match decided {
            Ok(decision) if decision.is_denied() => {
                self.release(hash, key, now);
                decision
            }
            Ok(decision) => {
                (key.in_table, key.reserve) = (room.min(MAX_ROOM), reserve);
                key.reserve += room - key.in_table;
                self.count_used(key, now, cost);
                if is_last && !key.pending.in_flight {
                    self.set_urgent(hash, key);
                }
                decision
            }
            Err(free) => self.table.deny_full(free, now),
        }
    }

    /// Decides by this machine's share of the limit, because the store cannot be reached.
    pub(super) fn decide_by_share(
        &self,
        hash: u64,
        name: impl FnOnce() -> Arc<str>,
        now: Tick,
        cost: u64,
    ) -> Decision {
        let Some(share) = &self.share else {
            return self.peek(hash, now, 0);
        };
        let decided = share.at(hash, now, cost > 0, |algorithm, state| {
            algorithm.decide(state, now, cost)
        });
        let decision = decided.unwrap_or_else(|free| share.deny_full(free, now));
        let mut shard = self.keys.shard(hash);
        let Some(key) = self.listed(&mut shard, hash, name, now) else {
            return decision;
        };
        if cost > 0 && !decision.is_denied() {
            let taken_at = now.into();
            self.push(key, Change::Charge { taken_at, cost }, now);
        }
        decision
    }

    /// Asks the store for the key, although no request waits for it.
    pub(super) fn probe(&self, hash: u64, name: impl FnOnce() -> Arc<str>, now: Tick) {
        let mut shard = self.keys.shard(hash);
        if let Some(key) = self.listed(&mut shard, hash, name, now) {
            self.set_urgent(hash, key);
        }
    }

    /// The decision on a request, taking nothing.
    pub(super) fn peek(&self, hash: u64, now: Tick, cost: u64) -> Decision {
        let looked = self.table.at(hash, now, false, |leasing, state| {
            Read(leasing.algorithm.peek(&state.fleet, now, cost))
        });
        match looked {
            Ok(Read(decision)) => decision,
            Err(free) => self.table.deny_full(free, now),
        }
    }

    /// Makes a change that no decision comes before. Returns the figures after it.
    pub(super) fn change(
        &self,
        hash: u64,
        name: impl FnOnce() -> Arc<str>,
        now: Tick,
        change: Change,
    ) -> Decision {
        let mut shard = self.keys.shard(hash);
        let Some(key) = self.listed(&mut shard, hash, name, now) else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return self.peek(hash, now, 0);
        };
        self.settle(hash, key, now);
        let made = self.table.at(hash, now, true, |leasing, state| {
            let algorithm = &leasing.algorithm;
            change.apply(algorithm, &mut state.fleet, now);
            if state.own.is_denying() {
                // It may be over.
                state.own = Held::default();
            }
            Written(algorithm.peek(&state.fleet, now, 0))
        });
        (key.checked_until, key.asked_until) = (Tick::ZERO, Tick::ZERO);
        if change == Change::Reset {
            // What was admitted before does not count any more.
            key.pending.unsent.clear();
        }
        self.push(key, change, now);
        self.release(hash, key, now);
        if !matches!(change, Change::Refund { .. } | Change::Forgive { .. }) {
            key.has_urgent_change = true;
            self.set_urgent(hash, key);
        }
        match made {
            Ok(Written(decision)) => decision,
            Err(free) => self.table.deny_full(free, now),
        }
    }

    /// Whether the exchange of a key cannot wait for the next look.
    pub(super) fn has_urgent(&self) -> bool {
        !lock(&self.urgent).is_empty()
    }

    pub(super) fn low_mark(&self, chunk: &Chunk, left: u64) -> u64 {
        let round_trip = Duration::from_nanos(self.round_trip.load(Ordering::Relaxed));
        chunk.low_mark(left, round_trip, &self.settings)
    }

    /// What the fast path may use, up to the end of the cell in which costs of `now` are counted.
    pub(super) fn held(
        &self,
        algorithm: &A,
        fleet: &A::State,
        now: Tick,
        room: u64,
        stop: Tick,
    ) -> Held {
        let cell_end = A::cell_end(algorithm, fleet, now);
        let until = stop.min(cell_end).min(now.plus(self.settings.slice()));
        Held::units(room, until)
    }

    /// Takes the units of a key out of the table, and moves what it has counted to the changes of the
    /// key. Ends the lease if its time is over. Until they are released, no thread can use them.
    pub(super) fn settle(&self, hash: u64, key: &mut LeaseKey, now: Tick) {
        let is_over = now >= key.stop;
        let taken = self.table.at(hash, now, false, |_, state| {
            let own = &mut state.own;
            let (taken_at, was_listed) = (own.last_moment(now), own.is_listed());
            let room = own.take_room();
            if is_over && was_listed {
                *own = Held::default();
            }
            Written((taken_at, room, was_listed))
        });
        let (taken_at, used) = if let Ok(Written((taken_at, room, true))) = taken {
            key.reserve = key.reserve.saturating_add(room);
            (taken_at, key.in_table.saturating_sub(room))
        } else {
            // Another key has taken its slot. All of it may have been used.
            self.lost.fetch_add(key.in_table, Ordering::Relaxed);
            (now, key.in_table)
        };
        key.in_table = 0;
        if used > 0 {
            self.count_used(key, taken_at, used);
        }
        if is_over {
            key.reserve = 0;
        }
    }

    /// Puts the units of a key into the table, except those for the time of the next exchange.
    pub(super) fn release(&self, hash: u64, key: &mut LeaseKey, now: Tick) {
        let left = key.reserve;
        if left == 0 {
            return;
        }
        let is_last = key.pending.in_flight || left <= key.low;
        let reserve = if is_last { 0 } else { key.low };
        let (room, stop) = ((left - reserve).min(MAX_ROOM), key.stop);
        let released = self.table.at(hash, now, true, |leasing, state| {
            state.own = self.held(&leasing.algorithm, &state.fleet, now, room, stop);
            Written(())
        });
        if released.is_ok() {
            (key.in_table, key.reserve) = (room, left - room);
        }
    }

    /// Counts units of the lease that were used.
    fn count_used(&self, key: &mut LeaseKey, taken_at: Tick, cost: u64) {
        key.leased = key.leased.saturating_add(cost);
        key.used = key.used.saturating_add(cost);
        let change = Change::Charge {
            taken_at: taken_at.into(),
            cost,
        };
        self.push(key, change, taken_at);
    }

    pub(super) fn push(&self, key: &mut LeaseKey, change: Change, now: Tick) {
        key.pending.push(&self.algorithm(), change, now);
    }

    /// Lets the key be exchanged at once, or after the exchange that is under way.
    fn set_urgent(&self, hash: u64, key: &mut LeaseKey) {
        if !std::mem::replace(&mut key.pending.is_urgent, true) && !key.pending.in_flight {
            lock(&self.urgent).push_back(hash);
        }
    }

    /// The entry of a key, which is added if there is room.
    fn listed<'a>(
        &self,
        shard: &'a mut Shard<LeaseKey>,
        hash: u64,
        name: impl FnOnce() -> Arc<str>,
        now: Tick,
    ) -> Option<&'a mut LeaseKey> {
        let is_full = self.keys.len() >= self.settings.capacity;
        if is_full && !shard.contains_key(&hash) {
            return None;
        }
        Some(shard.entry(hash).or_insert_with(|| {
            self.keys.count_added();
            let mut key = LeaseKey::new(name(), now, self.settings.most);
            key.pending.is_early = !self.clock.is_known();
            key
        }))
    }
}
