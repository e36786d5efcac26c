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
use super::pending::{PendingKey, PendingKeys, SentReport, Shard, total_cost};
use super::rules::{MAX_ROOM, Rules};
use super::tracked::{Step, StepInput, Tracked, Unsent, step};
use crate::algorithm::{Algorithm, Inherit, Packing};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::{ConfigError, StoreError};
use crate::store::{
    cas::report::Change,
    local::{Effect, Local, Outcome},
};
use crate::sync::{AtomicU64, Ordering};

/// One machine of a fleet.
#[derive(Debug)]
pub(super) struct Node<A: Algorithm> {
    table: Local<Tracked<A>, FleetClock>,
    pub(super) pending: PendingKeys,
    /// A number that no other machine has, nor this one after a restart.
    pub(super) id: u64,
    /// The number of the last report.
    sequence: AtomicU64,
    rules: Rules,
    /// How many machines use the limit: as configured, or as of the last exchanges.
    nodes: AtomicU64,
    /// The most machines that an exchange has seen since then.
    nodes_seen: AtomicU64,
    /// This machine's share of the limit, with what this machine has reported.
    share: Local<A, FleetClock>,
    /// Keys whose unreported cost was lost, because the table was full.
    lost: AtomicU64,
    /// The cost that counted no more before it could be reported.
    dropped: AtomicU64,
    /// Keys whose exchange cannot wait.
    urgent: AtomicU64,
    /// 1 if the clock shows the fleet's time.
    is_time_known: AtomicU64,
}

/// What the slow path makes of a request.
#[derive(Debug)]
pub(super) enum Slow {
    Decided(Decision),
    /// The request has to wait for an exchange, and is then decided again.
    Wait(oneshot::Receiver<Result<(), StoreError>>),
}

/// A report to be sent. Without changes, it asks for the state of the key.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    pub(super) hash: u64,
    pub(super) name: Arc<str>,
    pub(super) sequence: u64,
    pub(super) changes: Arc<[Change]>,
}

/// What was read from a state.
struct Read<T>(T);

impl<T> Outcome for Read<T> {
    fn effect(&self) -> Effect {
        Effect::Read
    }
}

/// What was found while a state was written.
struct Written<T>(T);

impl<T> Outcome for Written<T> {
    fn effect(&self) -> Effect {
        Effect::Changed
    }
}

impl<A: Algorithm> Node<A> {
    /// A machine whose table has room for `capacity` keys.
    pub(super) fn new(
        algorithm: A,
        rules: Rules,
        clock: &FleetClock,
        capacity: usize,
    ) -> Result<Self, ConfigError> {
        let nodes = rules.nodes.unwrap_or(1);
        let mut share = algorithm.clone();
        A::Packing::take_share(&mut share, nodes)?;
        let share = Local::new(share).with_clock(clock.clone());
        let table = Local::new(Tracked(algorithm)).with_clock(clock.clone());
        Ok(Self {
            table: table.try_capacity(capacity)?,
            pending: PendingKeys::new(),
            id: RandomState::new().hash_one(0),
            sequence: AtomicU64::new(0),
            rules,
            nodes: AtomicU64::new(nodes),
            nodes_seen: AtomicU64::new(0),
            share: share.try_capacity(capacity)?,
            lost: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            urgent: AtomicU64::new(0),
            is_time_known: AtomicU64::new(0),
        })
    }

    pub(super) fn algorithm(&self) -> A {
        self.table.algorithm().0
    }

    /// Changes the algorithm. What was used stays used.
    pub(super) fn set_algorithm(&self, algorithm: &A) -> Result<(), ConfigError> {
        self.table
            .set_algorithm(Tracked(algorithm.clone()), Inherit::AsIs)?;
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

    /// Decides on a request at `now`. `slow_path` calls [`decide_slow`](Self::decide_slow).
    #[expect(clippy::inline_always, reason = "as for `Local::check_n`")]
    #[inline(always)]
    pub(super) fn decide(
        &self,
        hash: u64,
        now: Tick,
        cost: u64,
        slow_path: impl FnOnce() -> Decision,
    ) -> Decision {
        self.table.decide_or(hash, now, cost, slow_path)
    }

    /// Admits a request at `now`, if that is possible without the slow path.
    #[expect(clippy::inline_always, reason = "as for `Local::check_n`")]
    #[inline(always)]
    pub(super) fn try_admit(&self, hash: u64, now: Tick, cost: u64) -> bool {
        self.table.try_admit_hashed(hash, now, cost)
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
        if by_share_only {
            let by_share = self.decide_by_share(hash, key, now, cost);
            if by_share.is_denied() || cost == 0 {
                return Slow::Decided(by_share);
            }
        }
        let mut done = self.step(hash, key, now, cost, by_share_only);
        if done.decision.is_denied() && self.rules.has_share(self.nodes()) {
            if self.decide_by_share(hash, key, now, cost).is_admitted() {
                let [moved, _] = done.moved;
                done = self.step(hash, key, now, cost, true);
                done.moved[0] = done.moved[0].or(moved);
            } else {
                // Not asked again before the next exchange: denials are frequent.
                let _ = self.table.at(hash, now, false, |_, state| {
                    state.unsent.has_share = false;
                    Written(())
                });
            }
        }
        if cost == 0 {
            return Slow::Decided(done.decision);
        }
        let key = self.listed(&mut shard, hash, name, now);
        for change in done.moved.into_iter().flatten() {
            key.push(&self.algorithm(), change, now);
        }
        if done.is_urgent && !key.is_urgent {
            key.is_urgent = true;
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
            is_listed: key.is_some(),
            is_forced,
            now,
            cost,
        };
        let done = self.table.at(hash, now, cost > 0, |tracked, state| {
            step(&tracked.0, state, &input)
        });
        done.unwrap_or_else(|free| Step::of(self.table.deny_full(free, now)))
    }

    /// The decision of this machine's share, if it had been used for all that this machine admitted.
    /// Takes nothing.
    fn decide_by_share(
        &self,
        hash: u64,
        key: Option<&PendingKey>,
        now: Tick,
        cost: u64,
    ) -> Decision {
        let in_table = self
            .table
            .at(hash, now, false, |_, state| Read(state.unsent));
        let in_table = match (key, in_table) {
            (Some(_), Ok(Read(mut unsent))) => unsent.take(now),
            _ => None,
        };
        let sent = key.iter().flat_map(|key| &key.sent);
        let sent = sent.flat_map(|sent| &*sent.changes);
        let unsent = key.iter().flat_map(|key| &key.unsent);
        let changes: Vec<_> = sent.chain(unsent).chain(&in_table).copied().collect();
        let decided = self.share.at(hash, now, false, |algorithm, state| {
            let mut state = state.clone();
            for change in &changes {
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
            Read(tracked.0.peek(&state.fleet, now, cost))
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
        let mut shard = self.pending.shard(hash);
        let is_listed = shard.contains_key(&hash);
        let made = self.table.at(hash, now, true, |tracked, state| {
            let algorithm = &tracked.0;
            let unsent = state.unsent.take_if(is_listed, now);
            change.apply(algorithm, &mut state.fleet, now);
            state.unsent.list(algorithm, &state.fleet, now);
            Written((unsent, algorithm.peek(&state.fleet, now, 0)))
        });
        let (unsent, decision) = match made {
            Ok(Written(made)) => made,
            Err(free) => (None, self.table.deny_full(free, now)),
        };
        let key = self.listed(&mut shard, hash, name, now);
        if change == Change::Reset {
            // What was admitted before does not count any more.
            key.unsent.clear();
            key.unsent.push(change);
            return decision;
        }
        for change in unsent.into_iter().chain([change]) {
            key.push(&self.algorithm(), change, now);
        }
        decision
    }

    /// Takes at most `most` reports to be sent, of keys whose exchange is not under way; if
    /// `urgent_only`, of those that cannot wait.
    pub(super) fn collect(&self, now: Tick, urgent_only: bool, most: usize) -> Vec<Outgoing> {
        let mut outgoing = Vec::new();
        for mut shard in self.pending.shards() {
            for (hash, key) in shard.iter_mut() {
                if outgoing.len() >= most {
                    return outgoing;
                }
                if !key.in_flight && (key.is_urgent || !urgent_only) {
                    outgoing.push(self.take_report(*hash, key, now));
                }
            }
        }
        outgoing
    }

    fn take_report(&self, hash: u64, key: &mut PendingKey, now: Tick) -> Outgoing {
        key.in_flight = true;
        if std::mem::take(&mut key.is_urgent) {
            self.urgent.fetch_sub(1, Ordering::Relaxed);
        }
        if key.sent.is_none() {
            let taken = self.table.at(hash, now, false, |_, state| {
                let was_listed = state.unsent.is_listed;
                Written((state.unsent.take(now), was_listed))
            });
            if let Ok(Written((change, was_listed))) = taken {
                key.unsent.extend(change);
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

    /// Ends an exchange: goes on from the state that the store holds, which contains the report, and
    /// from what was admitted since.
    pub(super) fn adopt(&self, hash: u64, now: Tick, fleet: &A::State, nodes: usize) {
        self.nodes_seen.fetch_max(nodes as u64, Ordering::Relaxed);
        let mut shard = self.pending.shard(hash);
        let Some(key) = shard.get_mut(&hash) else {
            return;
        };
        key.in_flight = false;
        if let Some(sent) = key.sent.take() {
            // The share counts what this machine has reported.
            let _ = self.share.at(hash, now, true, |algorithm, state| {
                for change in &*sent.changes {
                    change.apply(algorithm, state, now);
                }
            });
        }
        if key.is_early {
            self.leave_early_time(hash, key, now);
        }
        let (rules, nodes) = (self.rules, self.nodes());
        let unsent = &key.unsent;
        let adopted = self.table.at(hash, now, true, |tracked, state| {
            let algorithm = &tracked.0;
            let mut after = fleet.clone();
            let in_table = Unsent::take(&mut state.unsent.clone(), now);
            for change in unsent.iter().chain(&in_table) {
                change.apply(algorithm, &mut after, now);
            }
            state.fleet = after;
            let is_reported = unsent.is_empty() && in_table.is_none();
            state.unsent.is_listed = !is_reported;
            let budget = rules.budget(algorithm, &state.fleet, now, nodes);
            let unknown = total_cost(unsent) + total_cost(in_table.as_slice());
            state.unsent.has_share = rules.has_share(nodes);
            state.unsent.room = u64::from(budget)
                .saturating_sub(unknown)
                .try_into()
                .unwrap_or(MAX_ROOM);
            Written(is_reported)
        });
        key.since = now;
        self.dropped
            .fetch_add(std::mem::take(&mut key.dropped), Ordering::Relaxed);
        key.wake(&Ok(()));
        if !matches!(adopted, Ok(Written(false))) {
            let is_urgent = shard.remove(&hash).is_some_and(|key| key.is_urgent);
            self.urgent.fetch_sub(is_urgent.into(), Ordering::Relaxed);
        }
    }

    /// Lets the costs that were taken before the fleet's time was known count as of the next report.
    fn leave_early_time(&self, hash: u64, key: &mut PendingKey, now: Tick) {
        let taken = self.table.at(hash, now, false, |tracked, state| {
            let taken = state.unsent.take(now);
            state.unsent.cell_end = A::Packing::cell_end(&tracked.0, &state.fleet, now);
            Written(taken)
        });
        if let Ok(Written(change)) = taken {
            key.unsent.extend(change);
        }
        key.unsent.iter_mut().for_each(Change::make_present);
        key.is_early = false;
    }

    /// Ends an exchange whose outcome is not known. The same report is sent again.
    pub(super) fn fail(&self, hash: u64, error: &StoreError) {
        let mut shard = self.pending.shard(hash);
        if let Some(key) = shard.get_mut(&hash) {
            key.in_flight = false;
            key.wake(&Err(error.clone()));
        }
    }

    /// Ends a round of exchanges: adopts the number of machines that it has seen.
    pub(super) fn end_round(&self) -> Result<(), ConfigError> {
        let seen = self.nodes_seen.swap(0, Ordering::Relaxed);
        if self.rules.nodes.is_some() || seen == 0 || seen == self.nodes() {
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
            let mut key = PendingKey::new(name(), now);
            key.is_early = self.is_time_known.load(Ordering::Acquire) == 0;
            key
        })
    }

    fn set_share(&self, algorithm: &A, nodes: u64) -> Result<(), ConfigError> {
        let mut share = algorithm.clone();
        A::Packing::take_share(&mut share, nodes)?;
        self.share.set_algorithm(share, Inherit::AsIs)
    }
}
