//! What the clones of a limiter and its task share: the machine, the store, and how exchanges go.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64 as Counter},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, oneshot},
    task::JoinSet,
};

use super::clock::FleetClock;
use super::collect::{Due, Outgoing};
use super::node::Node;
use super::rules::Rules;
use crate::algorithm::{Algorithm, Inherit};
use crate::clock::{Clock, MonotonicClock, Tick, Timer, nanos};
use crate::error::{ConfigError, StoreError};
use crate::store::{
    cas::{
        CasStore, Swapped, Value,
        decider::Decider,
        error::Failure,
        policy::CasPolicy,
        recent::{Known, RecentRecords},
        record::Record,
        report::{Change, Report},
        shared::Shared,
    },
    remote::{LivePolicy, catch_panic},
};
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// Machines that have reported within so many intervals count as present.
const PRESENT_INTERVALS: u32 = 10;
/// The most exchanges that are under way at a time.
pub(super) const MAX_EXCHANGES: usize = 500;
/// How many records are kept that were used lately, and as many that were used before.
const RECORDS_PER_GENERATION: usize = 50_000;

/// What happens while the store cannot be reached, after some intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenCutOff {
    /// This machine admits its share of the limit: an equal part for each machine that it has last
    /// seen, or that is configured.
    #[default]
    Share,
    /// Every request is denied.
    Deny,
    /// Every request fails with the last error of the store. A
    /// [`Fallback`](crate::store::Fallback), or the layer's `on_store_error`, says what happens then.
    Fail,
}

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) interval: Duration,
    pub(super) rules: Rules,
    pub(super) capacity: usize,
    pub(super) when_cut_off: WhenCutOff,
    /// After so many intervals without a reply.
    pub(super) cut_off_after: u32,
}

impl Settings {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let allowed = Duration::from_millis(1)..=Duration::from_secs(3_600);
        if !allowed.contains(&self.interval) {
            let interval = format!("{:?}", self.interval);
            return Err(ConfigError::out_of_range(
                "interval",
                interval,
                "1 ms to 1 hour",
            ));
        }
        if self.rules.strict_budget == Some(0) {
            return Err(ConfigError::out_of_range("strict_budget", 0, "1 or more"));
        }
        if self.rules.nodes == Some(0) {
            return Err(ConfigError::out_of_range("nodes", 0, "1 or more"));
        }
        if self.cut_off_after == 0 {
            return Err(ConfigError::out_of_range("intervals", 0, "1 or more"));
        }
        Ok(())
    }
}

/// The task does not run.
const STOPPED: u64 = 0;
/// The task runs, and reaches the store.
const IN_TOUCH: u64 = 1;
/// The task runs, and has not reached the store for some intervals.
const CUT_OFF: u64 = 2;

pub(super) struct Fleet<S: CasStore, A: Algorithm> {
    pub(super) node: Node<A>,
    pub(super) clock: FleetClock,
    pub(super) settings: Settings,
    pub(super) shared: Arc<Shared<S>>,
    pub(super) policy: LivePolicy<CasPolicy<S, A>>,
    pub(super) name_prefix: String,
    records: Mutex<RecentRecords>,
    /// Wakes the task before the end of an interval.
    pub(super) wake: Notify,
    mode: AtomicU64,
    pub(super) is_closing: AtomicBool,
    pub(super) exchanges: Exchanges,
    last_error: Mutex<Option<StoreError>>,
}

/// How exchanges ended.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    pub(super) done: Counter,
    pub(super) failed: Counter,
    /// Those of them to which the store did not reply.
    pub(super) unanswered: Counter,
    /// Writes that found another version, because another machine had changed the key.
    pub(super) conflicts: Counter,
}

impl<S: CasStore, A: Algorithm> Fleet<S, A> {
    pub(super) fn new(
        store: S,
        prefix: &str,
        name: &str,
        algorithm: &A,
        settings: Settings,
    ) -> Result<Self, ConfigError> {
        let decider = Decider::new(algorithm.clone())?;
        // A reply that is later than the next interval would delay the one after it.
        let deadline = settings
            .interval
            .clamp(Duration::from_millis(50), Duration::from_secs(1));
        let shared = Arc::new(Shared::new(store, deadline));
        let clock = FleetClock::of_this_machine();
        let node = Node::new(algorithm.clone(), settings.rules, &clock, settings.capacity)?;
        let change_key = format!("{{{prefix}:{name}}}:quota");
        let policy = CasPolicy::new(decider, Arc::clone(&shared), change_key.into());
        Ok(Self {
            node,
            clock,
            settings,
            shared,
            policy: LivePolicy::new(policy),
            name_prefix: format!("{{{prefix}:{name}:"),
            records: Mutex::default(),
            wake: Notify::new(),
            mode: AtomicU64::new(STOPPED),
            is_closing: AtomicBool::new(false),
            exchanges: Exchanges::default(),
            last_error: Mutex::default(),
        })
    }

    /// Whether the task runs, and reaches the store.
    #[inline]
    pub(super) fn is_in_touch(&self) -> bool {
        self.mode.load(Ordering::Relaxed) == IN_TOUCH
    }

    /// What happens instead of a decision of the fleet, while the store cannot be reached.
    pub(super) fn cut_off(&self) -> Option<WhenCutOff> {
        let is_cut_off = self.mode.load(Ordering::Relaxed) == CUT_OFF;
        is_cut_off.then_some(self.settings.when_cut_off)
    }

    /// Notes whether the task reaches the store.
    pub(super) fn set_cut_off(&self, is_cut_off: bool) {
        let mode = if is_cut_off { CUT_OFF } else { IN_TOUCH };
        self.mode.store(mode, Ordering::Relaxed);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.mode.load(Ordering::Acquire) == STOPPED
    }

    /// Notes that the task runs. Returns false if it ran already.
    pub(super) fn start(&self) -> bool {
        self.mode
            .compare_exchange(STOPPED, IN_TOUCH, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Notes that the task has ended.
    pub(super) fn stop(&self) {
        self.mode.store(STOPPED, Ordering::Release);
    }

    /// The error of a request while the store cannot be reached.
    pub(super) fn cut_off_error(&self) -> StoreError {
        let last = lock(&self.last_error).clone();
        let cause = last.map_or_else(String::new, |last| format!(": {last}"));
        let message = format!(
            "{}: no exchange for {} intervals{cause}",
            S::NAME,
            self.settings.cut_off_after
        );
        StoreError::new(message, true)
    }

    /// Sends one report, and goes on from what the store holds then.
    async fn exchange(&self, outgoing: &Outgoing) -> Result<(), StoreError> {
        let policy = self.policy.active();
        let sent = self.send(&policy.decider, outgoing).await;
        match &sent {
            Ok((state, nodes)) => {
                self.exchanges.done.fetch_add(1, Ordering::Relaxed);
                let now = self.clock.now();
                let (current, decided_by) = (self.node.algorithm(), &policy.decider.algorithm);
                let mut state = state.clone();
                if current.quota() != decided_by.quota() {
                    current.rescale(&mut state, decided_by, now, Inherit::AsIs);
                }
                self.node.adopt(outgoing.hash, now, &state, *nodes);
            }
            Err(error) => {
                self.exchanges.failed.fetch_add(1, Ordering::Relaxed);
                if error.is_transient() {
                    self.exchanges.unanswered.fetch_add(1, Ordering::Relaxed);
                    *lock(&self.last_error) = Some(error.clone());
                }
                self.node.fail(outgoing.hash, self.clock.now(), error);
            }
        }
        sent.map(|_| ())
    }

    /// Makes the report a part of the record that the store holds. Returns the state in that record,
    /// and how many machines have reported lately.
    async fn send(
        &self,
        decider: &Decider<A>,
        outgoing: &Outgoing,
    ) -> Result<(A::State, usize), StoreError> {
        let shared = &self.shared;
        let ends_at = MonotonicClock.now().plus(shared.deadline);
        let mut known = lock(&self.records).take(&outgoing.name);
        let (mut is_fresh, mut conflicts) = (false, 0);
        loop {
            let (Some(current), Some(now)) = (known.take(), shared.time.now()) else {
                known = Some(self.load(outgoing, ends_at).await?);
                is_fresh = true;
                continue;
            };
            let present = self.settings.interval * PRESENT_INTERVALS;
            let report = Report {
                node: self.node.id,
                sequence: outgoing.sequence,
                changes: &outgoing.changes,
                present_since: Tick::from_nanos(now.as_nanos().saturating_sub(nanos(present))),
            };
            let reported = decider.report(&current.record, now, &report);
            let reported = reported.map_err(|failure| failure.in_store(S::NAME))?;
            let Some(record) = reported.record else {
                if !is_fresh {
                    // Another machine may have changed the record since.
                    continue;
                }
                self.keep(outgoing, current);
                return Ok((reported.state, reported.nodes));
            };
            let version = shared.next_version();
            let record = record.swapped_by(version);
            let value = Value::new(version, record.to_bytes());
            let ttl = Decider::<A>::time_to_live(&record, now);
            shared.check_breaker()?;
            let swap = shared
                .store
                .swap(&outgoing.name, current.version, &value, ttl);
            match shared.call_until(ends_at, swap).await? {
                Swapped::Done(server_time) => {
                    if server_time.is_some() {
                        self.learn(server_time);
                    }
                    let version = Some(version);
                    self.keep(outgoing, Known { version, record });
                    return Ok((reported.state, reported.nodes));
                }
                Swapped::Conflict(loaded) => {
                    self.exchanges.conflicts.fetch_add(1, Ordering::Relaxed);
                    conflicts += 1;
                    if conflicts > 1 {
                        self.pause(conflicts, ends_at).await?;
                    } else if let Some(loaded) = loaded {
                        self.learn(loaded.server_time);
                        known = Some(Self::read(loaded.value, outgoing)?);
                        is_fresh = true;
                    }
                }
            }
        }
    }

    fn keep(&self, outgoing: &Outgoing, known: Known) {
        lock(&self.records).keep(&outgoing.name, known, RECORDS_PER_GENERATION);
    }

    async fn load(&self, outgoing: &Outgoing, ends_at: Tick) -> Result<Known, StoreError> {
        self.shared.check_breaker()?;
        let load = self.shared.store.load(&outgoing.name);
        let loaded = self.shared.call_until(ends_at, load).await?;
        self.learn(loaded.server_time);
        Self::read(loaded.value, outgoing)
    }

    /// The record of a value. A reset replaces what cannot be read.
    fn read(value: Option<Value>, outgoing: &Outgoing) -> Result<Known, StoreError> {
        let version = value.as_ref().map(|value| value.version);
        let record = value.map_or_else(
            || Some(Record::default()),
            |value| Record::from_bytes(&value.bytes),
        );
        let resets = outgoing.changes.contains(&Change::Reset);
        match record {
            Some(record) => Ok(Known { version, record }),
            None if resets => Ok(Known {
                version,
                record: Record::default(),
            }),
            None => Err(Failure::Damaged.in_store(S::NAME)),
        }
    }

    fn learn(&self, server_time: Option<Tick>) {
        self.clock.learn(self.shared.time.learn(server_time));
        self.node.set_time_known();
    }

    /// Lets another machine go first: a random time that grows with each conflict.
    async fn pause(&self, conflicts: u32, ends_at: Tick) -> Result<(), StoreError> {
        let until = self.shared.retry_at(conflicts);
        if until >= ends_at {
            let message = format!("{}: too many conflicts with other machines", S::NAME);
            return Err(StoreError::new(message, true));
        }
        MonotonicClock.sleep_until(until).await;
        Ok(())
    }

    /// How long the oldest change has waited that the store may not have.
    pub(super) fn lag(&self) -> Duration {
        let now = self.clock.now();
        let waits = |keys: &super::pending::Shard| {
            let waits = keys.values().map(|key| now.since(key.since));
            waits.max().unwrap_or_default()
        };
        let lags = self.node.pending.shards().map(|shard| waits(&shard));
        lags.max().unwrap_or_default()
    }

    /// Sends all that is left, and waits for it. Reports that fail are tried twice more.
    pub(super) async fn flush(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut result = Ok(());
        for _ in 0..3 {
            for exchanged in self.wait_for_exchanges() {
                // The result is that of the next round.
                let _ = exchanged.await;
            }
            let left = self.node.collect(self.clock.now(), Due::All, usize::MAX);
            // Made at once: if this future is dropped, the reports are sent again.
            let left = left.into_iter();
            let mut left: VecDeque<_> = left
                .map(|outgoing| UnderWay::new(Arc::clone(self), outgoing))
                .collect();
            let mut exchanges = JoinSet::new();
            result = Ok(());
            loop {
                while exchanges.len() < MAX_EXCHANGES {
                    let Some(next) = left.pop_front() else { break };
                    exchanges.spawn(next.run());
                }
                match exchanges.join_next().await {
                    Some(Ok(Err(error))) => result = Err(error),
                    Some(_) => {}
                    None => break,
                }
            }
            if self.node.pending.len() == 0 {
                return Ok(());
            }
        }
        result
    }

    /// Completes when the exchanges end that are under way.
    fn wait_for_exchanges(&self) -> Vec<oneshot::Receiver<Result<(), StoreError>>> {
        let mut receivers = Vec::new();
        for mut shard in self.node.pending.shards() {
            for key in shard.values_mut().filter(|key| key.in_flight) {
                let (waiter, receiver) = oneshot::channel();
                key.waiters.push(waiter);
                receivers.push(receiver);
            }
        }
        receivers
    }
}

/// An exchange that is under way. If it is dropped, as with its runtime, the report is sent again.
pub(super) struct UnderWay<S: CasStore, A: Algorithm> {
    fleet: Arc<Fleet<S, A>>,
    outgoing: Outgoing,
    is_over: bool,
}

impl<S: CasStore, A: Algorithm> UnderWay<S, A> {
    pub(super) const fn new(fleet: Arc<Fleet<S, A>>, outgoing: Outgoing) -> Self {
        Self {
            fleet,
            outgoing,
            is_over: false,
        }
    }

    pub(super) async fn run(mut self) -> Result<(), StoreError> {
        let exchanged = catch_panic(S::NAME, self.fleet.exchange(&self.outgoing)).await;
        if let Ok(result) = exchanged {
            self.is_over = true;
            return result;
        }
        exchanged.and_then(|result| result)
    }
}

impl<S: CasStore, A: Algorithm> Drop for UnderWay<S, A> {
    fn drop(&mut self) {
        if !self.is_over {
            let message = format!("{}: the exchange was given up", S::NAME);
            let error = StoreError::new(message, true);
            let now = self.fleet.clock.now();
            self.fleet.node.fail(self.outgoing.hash, now, &error);
        }
    }
}
