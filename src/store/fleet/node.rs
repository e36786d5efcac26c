//! One machine of a fleet: its keys, and the task that exchanges them with the store.

use std::{mem, sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, oneshot},
    task::JoinSet,
};

use super::batch::{Batch, Replies};
use super::cas::{Flight, exchange};
use super::exchange::Limit;
use super::keys::{Exchanged, Keys, Shard};
use super::machine::StoreTime;
use super::shape::Shape;
use crate::algorithm::Algorithm;
use crate::clock::{Clock, MonotonicClock, Tick, nanos, unix_now};
use crate::decision::Decision;
use crate::error::{ConfigError, StoreError};
use crate::store::{
    cas::{
        CasStore, Runs,
        error::{damaged, shut_down, too_late},
        shared::Shared,
    },
    deadline::within,
    events::RemoteMetrics,
    remote::{RemoteKey, key_name, layout_of},
};
use crate::sync::{AtomicU64, CachePadded, Mutex, Ordering, lock};

/// How long a call of the store may take.
pub(super) const CALL_DEADLINE: Duration = Duration::from_secs(1);
/// How long a limiter that is dropped takes to report what is left at most.
const FLUSH_TIME: Duration = Duration::from_secs(1);
/// How many keys a batch holds at most: a store that cannot serve a round within an interval still replies to
/// each batch of each machine long before the deadline, and the interval stretches.
const MAX_BATCH: usize = 100;
/// Into how many groups the keys of a limit are divided. In a cluster those of a group are on one server.
const GROUPS: u32 = 64;

/// The time to the next attempt after a failed exchange, which doubles with each.
const RETRY: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// The task does not run.
const STOPPED: u64 = 0;
/// It runs, and the last exchange was done.
const IN_TOUCH: u64 = 1;
/// It runs, and the last exchange failed.
const CUT_OFF: u64 = 2;

pub(super) struct Node<S: CasStore, A: Algorithm> {
    pub(super) shared: Arc<Shared<S>>,
    pub(super) keys: Keys,
    pub(super) name_prefix: String,
    pub(super) algorithm: A,
    interval: Duration,
    /// How long a request waits at most.
    wait_limit: Duration,
    id: u64,
    pub(super) sequence_key: Arc<str>,
    mode: CachePadded<AtomicU64>,
    wake: Notify,
    pub(super) progress: Mutex<Progress>,
}

/// How far the exchanges are. It outlives the task. Its lock is taken before that of a key, if both are.
#[derive(Default)]
pub(super) struct Progress {
    sequence: u64,
    /// Batches without a reply. They are sent again unchanged before any other.
    flights: Vec<Arc<Flight>>,
    time: Option<StoreTime>,
    /// The store knows of all that was used before.
    reported_until: Tick,
    /// Keys that are to be exchanged at once.
    urgent: Vec<u64>,
    flushes: Vec<oneshot::Sender<Result<(), StoreError>>>,
    is_closing: bool,
    /// Keys that were exchanged, and batches that failed.
    pub(super) exchanged: u64,
    pub(super) failed: u64,
    pub(super) last_error: Option<StoreError>,
}

/// A machine whose task ends when the last clone of its limiter is dropped.
pub(super) struct Owner<S: CasStore, A: Algorithm>(pub(super) Arc<Node<S, A>>);

impl<S: CasStore, A: Algorithm> Drop for Owner<S, A> {
    fn drop(&mut self) {
        lock(&self.0.progress).is_closing = true;
        self.0.wake.notify_one();
    }
}

impl<S: CasStore, A: Algorithm> Node<S, A> {
    pub(super) fn new(
        store: S,
        [prefix, name]: [&str; 2],
        algorithm: A,
        [interval, life, wait_limit]: [Duration; 3],
        (capacity, ahead): (usize, bool),
    ) -> Result<Self, ConfigError> {
        algorithm.validate()?;
        let shared = Arc::new(Shared::new(store, CALL_DEADLINE));
        let limit = Limit {
            shape: Shape::of(&algorithm, unix_now())?,
            interval: nanos(interval) / 1_000,
            life: nanos(life) / 1_000,
            ahead,
        };
        // Machines that count otherwise have values of their own.
        let name_prefix = format!("{{{prefix}:{name}:{}:", layout_of(&algorithm));
        let id = shared.next_version() >> 12;
        Ok(Self {
            shared,
            keys: Keys::new(capacity, limit),
            sequence_key: format!("{name_prefix}0}}#{id}").into(),
            name_prefix,
            algorithm,
            interval,
            wait_limit,
            id,
            mode: CachePadded(AtomicU64::new(STOPPED)),
            wake: Notify::new(),
            progress: Mutex::default(),
        })
    }

    /// The name of a key in the store, without the prefix: its group, and the key.
    pub(super) fn name_of<K: RemoteKey + ?Sized>(&self, key: &K) -> Arc<str> {
        let name = key_name(&self.name_prefix, key);
        let key = &name[self.name_prefix.len()..name.len() - 1];
        // FNV-1a, the same on every machine.
        let hash = key.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        format!("{}}}{key}", hash % GROUPS).into()
    }

    pub(super) fn lag(&self) -> Duration {
        let progress = lock(&self.progress);
        let is_due = |shard: &Shard| shard.keys.values().any(|entry| entry.budget.is_due());
        if progress.flights.is_empty() && !self.keys.shards().any(|shard| is_due(&shard)) {
            return Duration::ZERO;
        }
        MonotonicClock.now().since(progress.reported_until)
    }

    /// Decides on a request of a cost, `again` if it has waited; or lets it wait for an exchange.
    pub(super) fn decide(
        self: &Arc<Self>,
        hash: u64,
        name: impl FnOnce() -> Arc<str>,
        request: (Tick, u64),
        again: bool,
    ) -> Result<Result<Decision, Exchanged>, StoreError> {
        self.ensure_running()?;
        let is_cut_off = self.mode.0.load(Ordering::Acquire) == CUT_OFF;
        match self.keys.decide(hash, name, request, [again, is_cut_off]) {
            Some(Ok(decision)) => Ok(Ok(decision)),
            Some(Err(exchanged)) => {
                self.exchange_now(hash);
                Ok(Err(exchanged))
            }
            None if is_cut_off => {
                let timed_out = || too_late(S::NAME, self.wait_limit);
                let last_error = lock(&self.progress).last_error.clone();
                Err(last_error.unwrap_or_else(timed_out))
            }
            None => Err(Self::is_full()),
        }
    }

    /// Waits until exchanges of a key have decided on a request.
    pub(super) async fn wait(
        self: Arc<Self>,
        (hash, name): (u64, Arc<str>),
        mut exchanged: Exchanged,
        (asked_at, cost): (Tick, u64),
    ) -> Result<Decision, StoreError> {
        let ends_at = asked_at.plus(self.wait_limit);
        loop {
            let ended = within(ends_at, exchanged).await;
            let ended = ended.ok_or_else(|| too_late(S::NAME, self.wait_limit))?;
            // The key was forgotten, or the runtime of the task was shut down.
            ended.map_err(|_| shut_down(S::NAME))??;
            let request = (MonotonicClock.now(), cost);
            match self.decide(hash, || Arc::clone(&name), request, true)? {
                Ok(decision) => return Ok(decision),
                Err(next) => exchanged = next,
            }
        }
    }

    pub(super) fn is_full() -> StoreError {
        let text = "all keys of the table are being exchanged";
        StoreError::new(format!("{}: {text}", S::NAME), true)
    }

    /// Exchanges a key before the next interval.
    pub(super) fn exchange_now(&self, hash: u64) {
        lock(&self.progress).urgent.push(hash);
        self.wake.notify_one();
    }

    /// Reports all that was used, gives back all units, and waits until the store has it.
    pub(super) async fn flush(self: &Arc<Self>) -> Result<(), StoreError> {
        let (sender, flushed) = oneshot::channel();
        // Before the task is looked for: it drops what it finds here after it has said that it stops.
        lock(&self.progress).flushes.push(sender);
        self.ensure_running()?;
        self.wake.notify_one();
        let stopped = |_| shut_down(S::NAME);
        flushed.await.map_err(stopped)?
    }

    /// Goes on with the windows of the calendar of now.
    fn adopt_windows(&self) {
        let time = lock(&self.progress).time;
        let micros = time.map(|time| time.store_time_of(MonotonicClock.now()));
        let now = micros.map_or_else(unix_now, |micros| Tick::from_nanos(micros * 1_000));
        let limit = self.keys.limit();
        // It was checked when the limit was built.
        let shape = Shape::of(&self.algorithm, now);
        if let Some(shape) = shape.ok().filter(|shape| *shape != limit.shape) {
            let limit = Limit::clone(&limit);
            self.keys.set_limit(&Arc::new(Limit { shape, ..limit }));
        }
    }

    /// Starts the task, if it does not run: at first, and if its runtime was shut down.
    #[inline]
    pub(super) fn ensure_running(self: &Arc<Self>) -> Result<(), StoreError> {
        if self.mode.0.load(Ordering::Acquire) != STOPPED {
            return Ok(());
        }
        self.start()
    }

    #[cold]
    fn start(self: &Arc<Self>) -> Result<(), StoreError> {
        // In a busy runtime the exchange would come late, and the key with it.
        let runtime = self.shared.runtime()?;
        let mode = &self.mode.0;
        let started = mode.compare_exchange(STOPPED, IN_TOUCH, Ordering::AcqRel, Ordering::Relaxed);
        if started.is_ok() {
            lock(&self.progress).reported_until = MonotonicClock.now();
            runtime.spawn(Task(Arc::clone(self)).run());
            // A runtime that shuts down drops the task at once.
            if mode.load(Ordering::Acquire) == STOPPED {
                return Err(shut_down(S::NAME));
            }
        }
        Ok(())
    }
}

struct Task<S: CasStore, A: Algorithm>(Arc<Node<S, A>>);

impl<S: CasStore, A: Algorithm> Task<S, A> {
    async fn run(self) {
        let node = &self.0;
        let (mut next, mut retry) = (MonotonicClock.now(), RETRY[0]);
        loop {
            within(next, node.wake.notified()).await;
            let now = MonotonicClock.now();
            let (flushes, is_closing) = {
                let mut progress = lock(&node.progress);
                (mem::take(&mut progress.flushes), progress.is_closing)
            };
            let (is_tick, returns_all) = (now >= next, is_closing || !flushes.is_empty());
            let is_cut_off = node.mode.0.load(Ordering::Acquire) == CUT_OFF;
            if is_cut_off && !is_tick && !returns_all {
                continue;
            }
            let exchange = self.exchange(is_tick, returns_all);
            if is_closing {
                let _ = within(now.plus(FLUSH_TIME), exchange).await;
                return;
            }
            let result = exchange.await;
            if let Err(error) = &result {
                let mut progress = lock(&node.progress);
                progress.failed += 1;
                progress.last_error = Some(error.clone());
                progress.urgent.clear();
                drop(progress);
                node.mode.0.store(CUT_OFF, Ordering::Release);
                // Requests that come later see that the store cannot be reached.
                node.keys.fail_waiters(error, MonotonicClock.now());
                // Sooner than in an interval, which may be an hour, and not in step with other machines.
                let random = node.shared.random_below(retry / 2);
                next = MonotonicClock.now().plus(retry / 2 + random);
                retry = (2 * retry).min(RETRY[1]);
            } else {
                node.mode.0.store(IN_TOUCH, Ordering::Release);
                lock(&node.progress).last_error = None;
                if is_tick {
                    (next, retry) = (now.plus(self.interval()), RETRY[0]);
                }
            }
            if cfg!(feature = "metrics") && is_tick {
                RemoteMetrics(S::NAME).fleet_lag(node.lag());
            }
            for flush in flushes {
                let _ = flush.send(result.clone());
            }
        }
    }

    /// The time to the next tick, so that machines do not keep in step.
    fn interval(&self) -> Duration {
        let interval = self.0.interval;
        interval * 9 / 10 + self.0.shared.random_below(interval / 5)
    }

    /// Sends the batches that have no reply yet, then the keys that cannot wait, and in a tick all that are due.
    async fn exchange(&self, is_tick: bool, returns_all: bool) -> Result<(), StoreError> {
        let node = &self.0;
        node.adopt_windows();
        let (is_all, begun) = (is_tick || returns_all, MonotonicClock.now());
        self.send().await?;
        let mut due = if is_all {
            node.keys.due(begun)
        } else {
            Vec::new()
        };
        loop {
            // Requests that wait go first, but those that come while there is a tick may have no end.
            let most = MAX_BATCH - due.len().min(MAX_BATCH / 2);
            let mut batch = mem::take(&mut lock(&node.progress).urgent);
            let later = batch.split_off(batch.len().min(most));
            batch.extend(due.drain(due.len().saturating_sub(MAX_BATCH - batch.len())..));
            self.collect(&batch, later, returns_all);
            self.send().await?;
            if due.is_empty() {
                break;
            }
        }
        let mut progress = lock(&node.progress);
        if is_all {
            progress.reported_until = begun;
        }
        if !progress.urgent.is_empty() {
            node.wake.notify_one();
        }
        Ok(())
    }

    /// Makes batches of the keys that have something to report.
    fn collect(&self, hashes: &[u64], later: Vec<u64>, returns_all: bool) {
        let node = &self.0;
        let mut progress = lock(&node.progress);
        progress.urgent.extend(later);
        let now = MonotonicClock.now();
        let mut collected = Vec::new();
        for hash in hashes {
            let mut shard = node.keys.shard(*hash);
            let Some(entry) = shard.keys.get_mut(hash) else {
                continue;
            };
            if entry.is_in_flight || !entry.budget.is_due() {
                continue;
            }
            entry.is_in_flight = true;
            let time = progress.time.as_ref();
            let report = entry.budget.collect(time, now, returns_all);
            let name = format!("{}{}", node.name_prefix, entry.name);
            collected.push((*hash, (name.into(), report)));
        }
        // Keys that are swapped have a batch each.
        let most = if S::RUNS == Runs::None { 1 } else { MAX_BATCH };
        for some in collected.chunks(most) {
            progress.sequence += 1;
            let batch = Batch {
                machine: node.id,
                sequence: progress.sequence,
                limit: node.keys.limit(),
                sequence_key: Arc::clone(&node.sequence_key),
                keys: some.iter().map(|(_, report)| report.clone()).collect(),
            };
            let hashes = some.iter().map(|(hash, _)| *hash).collect();
            progress.flights.push(Flight::new(batch, hashes, now));
        }
    }

    /// Sends the batches that have no reply.
    async fn send(&self) -> Result<(), StoreError> {
        let node = &self.0;
        let flights = lock(&node.progress).flights.clone();
        let mut sending = JoinSet::new();
        for flight in flights {
            let node = Arc::clone(node);
            sending.spawn(async move {
                let sent = MonotonicClock.now();
                let result = exchange(&node.shared, &flight).await;
                RemoteMetrics(S::NAME).call_ended(sent, CALL_DEADLINE, result.as_ref().err());
                node.adopt(&flight, &result?, sent);
                Ok(())
            });
        }
        while let Some(joined) = sending.join_next().await {
            let failed = |error| StoreError::new(format!("{}: {error}", S::NAME), true);
            joined.map_err(failed)??;
        }
        Ok(())
    }
}

impl<S: CasStore, A: Algorithm> Node<S, A> {
    /// Takes in the replies to a batch.
    fn adopt(&self, flight: &Arc<Flight>, replies: &Replies, sent: Tick) {
        let received = MonotonicClock.now();
        let time = StoreTime {
            begun: flight.begun,
            sent,
            received,
            at: replies.now,
        };
        let mut progress = lock(&self.progress);
        progress.flights.retain(|other| !Arc::ptr_eq(other, flight));
        progress.time = Some(time);
        progress.exchanged += flight.hashes.len() as u64;
        for (hash, reply) in flight.hashes.iter().zip(&replies.keys) {
            let mut shard = self.keys.shard(*hash);
            let Shard { limit, keys } = &mut *shard;
            let Some(entry) = keys.get_mut(hash) else {
                continue;
            };
            entry.is_in_flight = false;
            if let Some(reply) = reply {
                entry.budget.adopt(limit, reply, &time);
                entry.wake(&Ok(()));
            } else {
                entry.wake(&Err(damaged(S::NAME)));
            }
        }
    }
}

/// Lets another task take over, if the runtime is shut down.
impl<S: CasStore, A: Algorithm> Drop for Task<S, A> {
    fn drop(&mut self) {
        let node = &self.0;
        node.mode.0.store(STOPPED, Ordering::Release);
        lock(&node.progress).flushes.clear();
        let error = shut_down(S::NAME);
        node.keys.fail_waiters(&error, MonotonicClock.now());
    }
}
