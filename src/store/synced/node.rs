//! One machine of a fleet: decides in memory, and keeps what it has to report.
//!
//! Nothing here waits or does I/O, and each function is told the time, so a simulation can run many
//! machines.

use std::{
    hash::{BuildHasher, Hash, RandomState},
    sync::Arc,
};

use tokio::sync::oneshot;

use super::clock::FleetClock;
use super::rules::Rules;
use super::tracked::{KeySlot, Step, StepInput, Tracked, TrackedState, step};
use crate::algorithm::{Inherit, Portable};
use crate::clock::Tick;
use crate::decision::{Decision, Verdict};
use crate::error::{ConfigError, StoreError};
use crate::store::{
    cas::report::Change,
    fleet::{PendingKey, PendingKeys, Place, Read, Shard, Slow, Written, total_cost},
    local::Local,
};
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// The states of a machine.
pub(super) type MachineTable<A> = Local<Tracked<A>, FleetClock>;

/// One machine of a fleet.
#[derive(Debug)]
pub(super) struct Node<A: Portable> {
    pub(super) table: MachineTable<A>,
    pub(super) pending: PendingKeys,
    /// A number that no other machine has, nor this one after a restart.
    pub(super) id: u64,
    /// The number of the last report.
    pub(super) sequence: AtomicU64,
    rules: Rules,
    /// How many machines use the limit: as configured, or as of the last exchanges.
    nodes: AtomicU64,
    /// The most machines that an exchange has seen since then.
    nodes_seen: AtomicU64,
    /// For so many rounds, exchanges have seen fewer machines.
    rounds_with_less: AtomicU64,
    /// Counts intervals.
    pub(super) round: AtomicU64,
    /// So many keys stay listed while they are in use. A sixteenth more may be listed, so that there is room
    /// for new keys.
    capacity: usize,
    /// This machine's share of the limit, with what this machine has admitted, beside the costs in
    /// the table.
    share: Local<A, FleetClock>,
    /// Keys whose unreported cost was lost, because the table was full.
    pub(super) lost: AtomicU64,
    /// The cost that counted no more before it could be reported.
    dropped: AtomicU64,
    /// Keys whose exchange cannot wait.
    pub(super) urgent: AtomicU64,
    /// Their hashes, and some of keys whose exchange can.
    pub(super) urgent_keys: Mutex<Vec<u64>>,
    /// How far the keys of this round have been looked at. Otherwise a machine with a million keys would
    /// look at all of them after each exchange.
    pub(super) place: Mutex<Place>,
    /// 1 if the clock shows the fleet's time.
    is_time_known: AtomicU64,
}

/// After so many rounds with fewer machines, their number is adopted.
const ROUNDS_BEFORE_LESS: u64 = 100;

impl<A: Portable> Node<A> {
    /// A machine whose table has room for `capacity` keys.
    pub(super) fn new(
        algorithm: A,
        rules: Rules,
        clock: &FleetClock,
        capacity: usize,
    ) -> Result<Self, ConfigError> {
        let nodes = rules.nodes.unwrap_or(1);
        let mut share = algorithm.clone();
        A::take_share(&mut share, nodes)?;
        let share = Local::new(share).with_clock(clock.clone());
        let table = Local::new(Tracked::new(algorithm)).with_clock(clock.clone());
        Ok(Self {
            table: table.try_capacity(capacity)?,
            pending: PendingKeys::new(),
            id: RandomState::new().hash_one(0),
            sequence: AtomicU64::new(0),
            rules,
            nodes: AtomicU64::new(nodes),
            nodes_seen: AtomicU64::new(0),
            rounds_with_less: AtomicU64::new(0),
            round: AtomicU64::new(1),
            capacity,
            share: share.try_capacity(capacity)?,
            lost: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            urgent: AtomicU64::new(0),
            urgent_keys: Mutex::default(),
            place: Mutex::default(),
            is_time_known: AtomicU64::new(0),
        })
    }

    pub(super) fn algorithm(&self) -> A {
        self.table.algorithm().algorithm
    }

    /// Changes the algorithm. What was used stays used.
    pub(super) fn set_algorithm(&self, algorithm: &A) -> Result<(), ConfigError> {
        self.table
            .set_algorithm(Tracked::new(algorithm.clone()), Inherit::AsIs)?;
        self.set_share(algorithm, self.nodes())
    }

    pub(super) fn hash<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        self.table.hash(key)
    }

    /// How many machines use the limit: as configured, or as of the last exchanges.
    pub(super) fn nodes(&self) -> u64 {
        self.nodes.load(Ordering::Relaxed)
    }

    /// Keys whose unreported cost was lost, because the table was full.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// The cost that counted no more before it could be reported.
    #[cfg(test)]
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(super) fn losses(&self) -> crate::backend::Losses {
        use crate::backend::Backend;
        <Local<_, _> as Backend<str>>::losses(&self.table)
    }

    /// Decides on a request that changes more than the state in the table. `by_share_only` is for a
    /// machine that cannot reach the store: it may admit as much as its share.
    pub(super) fn decide_slow(
        &self,
        hash: u64,
        name: impl FnOnce() -> Arc<str>,
        now: Tick,
        cost: u64,
        by_share_only: bool,
    ) -> Slow {
        let mut shard = self.pending.shard(hash);
        let key = shard.get(&hash);
        let is_listed = key.is_some();
        if !is_listed && self.is_full() {
            return Slow::Decided(self.decide_unlisted(hash, now, cost));
        }
        if by_share_only {
            let by_share = self.decide_by_share(hash, key, now, cost);
            if by_share.is_denied() || cost == 0 {
                return Slow::Decided(by_share);
            }
        }
        let mut done = self.step(hash, key, now, cost, by_share_only);
        if done.decision.is_denied() && self.rules.has_share(self.nodes()) {
            if self.decide_by_share(hash, key, now, cost).is_admitted() {
                let [first, second, _] = done.moved;
                done = self.step(hash, key, now, cost, true);
                if first.is_some() {
                    (done.moved[0], done.moved[1]) = (first, second);
                }
            } else {
                // As `step` does if this machine has no share.
                let _ = self.table.at(hash, now, false, |_, state| {
                    state.own.stop_asking();
                    Written(())
                });
            }
        }
        if cost == 0 || done.slot == KeySlot::None {
            return Slow::Decided(done.decision);
        }
        if is_listed && done.slot == KeySlot::Unlisted {
            // Its slot was taken by another key in between, with the cost since the last report.
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        let key = self.listed(&mut shard, hash, name, now);
        key.is_used = true;
        for change in done.moved.into_iter().flatten() {
            self.keep(hash, key, change, now);
        }
        if done.is_urgent && !key.is_urgent {
            key.is_urgent = true;
            lock(&self.urgent_keys).push(hash);
            self.urgent.fetch_add(1, Ordering::Relaxed);
        }
        if !done.needs_exchange {
            return Slow::Decided(done.decision);
        }
        let (waiter, receiver) = oneshot::channel();
        key.waiters.push(waiter);
        Slow::Wait(receiver)
    }

    /// Decides on the state in the table. `is_forced` admits the request in any case.
    fn step(
        &self,
        hash: u64,
        key: Option<&PendingKey>,
        now: Tick,
        cost: u64,
        is_forced: bool,
    ) -> Step {
        let input = StepInput {
            rules: self.rules,
            nodes: self.nodes(),
            unknown: key.map_or(0, PendingKey::unknown_cost),
            since: key.map_or(now, |key| key.since),
            is_forced,
            now,
            cost,
        };
        let done = self.table.at(hash, now, cost > 0, |tracked, state| {
            step(&tracked.algorithm, state, &input)
        });
        done.unwrap_or_else(|free| Step {
            slot: KeySlot::None,
            ..Step::of(self.table.deny_full(free, now))
        })
    }

    /// Decides for a key that cannot be listed, because too many are. Its cost is not reported. With a
    /// strict budget it is denied.
    fn decide_unlisted(&self, hash: u64, now: Tick, cost: u64) -> Decision {
        self.lost.fetch_add(1, Ordering::Relaxed);
        if self.rules.strict_budget.is_some() {
            let figures = self.peek(hash, now, 0);
            return Decision::new(Verdict::Deny, figures.limit, 0, None, 0);
        }
        let decided = self.table.at(hash, now, cost > 0, |tracked, state| {
            tracked.algorithm.decide(&mut state.fleet, now, cost)
        });
        decided.unwrap_or_else(|free| self.table.deny_full(free, now))
    }

    /// The decision of this machine's share, if it had been used for all that this machine admitted.
    /// Takes nothing. A key that is banned or blocked for the fleet has no share.
    fn decide_by_share(
        &self,
        hash: u64,
        key: Option<&PendingKey>,
        now: Tick,
        cost: u64,
    ) -> Decision {
        let in_table = self.table.at(hash, now, false, |tracked, state| {
            let algorithm = &tracked.algorithm;
            if A::is_blocked(algorithm, &state.fleet, now) {
                return Read(Err(algorithm.peek(&state.fleet, now, cost)));
            }
            let take = |key: &PendingKey| {
                let mut own = state.own;
                own.take(algorithm, &state.fleet, key.since, now)
            };
            Read(Ok(key.map_or([None; 2], take)))
        });
        let in_table = match in_table {
            Ok(Read(Err(denial))) => return denial,
            Ok(Read(Ok(changes))) => changes,
            Err(_) => [None; 2],
        };
        let decided = self.share.at(hash, now, false, |algorithm, state| {
            let mut state = state.clone();
            for change in in_table.into_iter().flatten() {
                change.apply(algorithm, &mut state, now);
            }
            Read(algorithm.peek(&state, now, cost))
        });
        match decided {
            Ok(Read(decision)) => decision,
            Err(free) => self.share.deny_full(free, now),
        }
    }

    /// Whether the exchange of a key cannot wait for the end of the interval.
    pub(super) fn has_urgent(&self) -> bool {
        self.urgent.load(Ordering::Relaxed) > 0
    }

    /// The decision on a request, taking nothing.
    pub(super) fn peek(&self, hash: u64, now: Tick, cost: u64) -> Decision {
        let looked = self.table.at(hash, now, false, |tracked, state| {
            Read(tracked.algorithm.peek(&state.fleet, now, cost))
        });
        match looked {
            Ok(Read(decision)) => decision,
            Err(free) => self.table.deny_full(free, now),
        }
    }

    /// Whether no more keys may be listed.
    fn is_full(&self) -> bool {
        self.pending.len() >= self.capacity.saturating_add(self.capacity / 16)
    }

    /// Makes a change that no decision comes before. Returns the figures after it.
    pub(super) fn change(
        &self,
        hash: u64,
        name: impl FnOnce() -> Arc<str>,
        now: Tick,
        change: Change,
    ) -> Decision {
        let mut shard = self.pending.shard(hash);
        if !shard.contains_key(&hash) && self.is_full() {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return self.peek(hash, now, 0);
        }
        let key = shard.get(&hash);
        let input = StepInput {
            rules: self.rules,
            nodes: self.nodes(),
            unknown: key.map_or(0, PendingKey::unknown_cost),
            since: key.map_or(now, |key| key.since),
            is_forced: true,
            now,
            cost: 0,
        };
        let made = self.table.at(hash, now, true, |tracked, state| {
            let algorithm = &tracked.algorithm;
            let TrackedState { fleet, own } = state;
            let unsent = own.take(algorithm, fleet, input.since, now);
            change.apply(algorithm, fleet, now);
            own.begin_cell(algorithm, fleet, &input);
            Written((unsent, algorithm.peek(&state.fleet, now, 0)))
        });
        let (unsent, decision) = match made {
            Ok(Written(made)) => made,
            Err(free) => ([None; 2], self.table.deny_full(free, now)),
        };
        let key = self.listed(&mut shard, hash, name, now);
        if change == Change::Reset {
            // What was admitted before does not count any more. A report that the store cannot take
            // must not hold up the reset; if it is executed late, it finds another version.
            key.unsent.clear();
            if !key.in_flight {
                key.sent = None;
            }
            self.keep(hash, key, change, now);
            return decision;
        }
        for change in unsent.into_iter().flatten().chain([change]) {
            self.keep(hash, key, change, now);
        }
        decision
    }

    /// Ends an exchange: goes on from the state that the store holds, which contains the report, and
    /// from what was admitted since.
    pub(super) fn adopt(&self, hash: u64, now: Tick, fleet: &A::State, nodes: usize) {
        self.nodes_seen.fetch_max(nodes as u64, Ordering::Relaxed);
        let mut shard = self.pending.shard(hash);
        let Some(key) = shard.get_mut(&hash) else {
            return;
        };
        key.in_flight = false;
        let sent = key.sent.take();
        self.move_cost(hash, key, now);
        if key.is_early {
            key.unsent.iter_mut().for_each(Change::make_present);
            key.is_early = false;
            // Now they have a moment.
            let _ = self.share.at(hash, now, true, |algorithm, state| {
                *state = algorithm.fresh(now);
                let sent = sent.iter().flat_map(|sent| &*sent.changes);
                for change in sent.chain(&key.unsent) {
                    change.apply(algorithm, state, now);
                }
            });
        }
        let (rules, nodes) = (self.rules, self.nodes());
        // In use, it will be admitted without the slow path.
        let stays_listed = self.pending.len() <= self.capacity;
        let (unsent, since) = (&key.unsent, key.since);
        let adopted = self.table.at(hash, now, true, |tracked, state| {
            let algorithm = &tracked.algorithm;
            // What was admitted after the cost was moved.
            let mut own = state.own;
            let later = own.take(algorithm, &state.fleet, since, now);
            state.fleet = fleet.clone();
            for change in unsent.iter().chain(later.iter().flatten()) {
                change.apply(algorithm, &mut state.fleet, now);
            }
            let is_reported = unsent.is_empty() && state.own.cost() == 0;
            let cost = state.own.cost();
            state.own.unlist();
            let is_listed = stays_listed || !is_reported;
            if is_listed {
                let unknown = total_cost(unsent).saturating_add(cost);
                let input = StepInput {
                    rules,
                    nodes,
                    unknown,
                    since,
                    is_forced: false,
                    now,
                    cost: 0,
                };
                state.own.begin_cell(algorithm, &state.fleet, &input);
                state.own.mark_unused();
            }
            Written((is_listed, is_reported))
        });
        (key.since, key.is_used) = (now, false);
        self.dropped
            .fetch_add(std::mem::take(&mut key.dropped), Ordering::Relaxed);
        key.wake(&Ok(()));
        if matches!(adopted, Ok(Written((_, false)))) {
            return;
        }
        if std::mem::take(&mut key.is_urgent) {
            self.urgent.fetch_sub(1, Ordering::Relaxed);
        }
        if !matches!(adopted, Ok(Written((true, _)))) {
            shard.remove(&hash);
            self.pending.count_removed();
        }
    }

    /// Whether a key has something to report, or to learn.
    pub(super) fn is_in_use(&self, hash: u64, key: &PendingKey, now: Tick) -> bool {
        let cost = || {
            let read = |_: &_, state: &mut TrackedState<A::State>| Read(state.own.cost());
            self.table.at(hash, now, false, read)
        };
        !key.is_idle() || matches!(cost(), Ok(Read(1..)))
    }

    /// Adds a change to those that wait for a report. The share of this machine counts it at once.
    pub(super) fn keep(&self, hash: u64, key: &mut PendingKey, change: Change, now: Tick) {
        key.push(&self.algorithm(), change, now);
        let _ = self.share.at(hash, now, true, |algorithm, state| {
            change.apply(algorithm, state, now);
        });
    }

    /// Moves the cost that the state holds to the changes of the key, with its moment.
    fn move_cost(&self, hash: u64, key: &mut PendingKey, now: Tick) {
        let since = key.since;
        let taken = self.table.at(hash, now, false, |tracked, state| {
            let TrackedState { fleet, own } = state;
            Written(own.take(&tracked.algorithm, fleet, since, now))
        });
        let Ok(Written(taken)) = taken else {
            return;
        };
        for change in taken.into_iter().flatten() {
            self.keep(hash, key, change, now);
        }
    }

    /// Ends an exchange whose outcome is not known. The same report is sent again.
    pub(super) fn fail(&self, hash: u64, now: Tick, error: &StoreError) {
        let mut shard = self.pending.shard(hash);
        if let Some(key) = shard.get_mut(&hash) {
            key.in_flight = false;
            // Otherwise it would seem to be of the moment of the reply that comes at last.
            self.move_cost(hash, key, now);
            key.wake(&Err(error.clone()));
        }
    }

    /// Ends a round of exchanges: adopts the number of machines that it has seen.
    pub(super) fn end_round(&self) -> Result<(), ConfigError> {
        if self.rules.nodes.is_some() {
            return Ok(());
        }
        let seen = self.nodes_seen.load(Ordering::Relaxed);
        let is_less = seen < self.nodes();
        let rounds = self.rounds_with_less.load(Ordering::Relaxed) + 1;
        if is_less && rounds < ROUNDS_BEFORE_LESS {
            // Other machines may only not have used the keys of this round.
            self.rounds_with_less.store(rounds, Ordering::Relaxed);
            return Ok(());
        }
        self.rounds_with_less.store(0, Ordering::Relaxed);
        self.nodes_seen.store(0, Ordering::Relaxed);
        if seen == 0 || seen == self.nodes() {
            return Ok(());
        }
        self.nodes.store(seen, Ordering::Relaxed);
        self.set_share(&self.algorithm(), seen)
    }

    /// Notes that the clock shows the fleet's time.
    pub(super) fn set_time_known(&self) {
        self.is_time_known.store(1, Ordering::Release);
    }

    /// The entry of a key, which is added if there is none.
    fn listed<'a>(
        &self,
        shard: &'a mut Shard,
        hash: u64,
        name: impl FnOnce() -> Arc<str>,
        now: Tick,
    ) -> &'a mut PendingKey {
        shard.entry(hash).or_insert_with(|| {
            self.pending.count_added();
            let mut key = PendingKey::new(name(), now);
            key.round = self.round.load(Ordering::Relaxed);
            key.is_early = self.is_time_known.load(Ordering::Acquire) == 0;
            key
        })
    }

    fn set_share(&self, algorithm: &A, nodes: u64) -> Result<(), ConfigError> {
        let mut share = algorithm.clone();
        A::take_share(&mut share, nodes)?;
        self.share.set_algorithm(share, Inherit::AsIs)
    }
}
