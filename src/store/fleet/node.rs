//! One machine of a fleet: its keys, and the task that exchanges them with the store.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use tokio::{
    sync::{Notify, oneshot},
    task::JoinSet,
};

use super::batch::{Batch, Replies};
use super::cas::{Flight, exchange};
use super::exchange::{Limit, Report};
use super::keys::{Exchanged, KeyShard, Keys};
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
use crate::sync::{CachePadded, Mutex, Ordering, lock};

/// How long a call of the store may take.
const CALL_DEADLINE: Duration = Duration::from_secs(1);
/// How long a limiter that is dropped takes to report what is left at most.
const FLUSH_TIME: Duration = Duration::from_secs(2);
/// How many keys a batch holds at most: a store that cannot serve a round within an interval still replies to
/// each batch of each machine long before the deadline, and the interval stretches.
const MAX_BATCH: usize = 100;
/// How many batches of one key are sent again. With more than these the whole store is taken for down.
const MAX_FLIGHTS: usize = 10_000;
/// Into how many groups the keys of a limit are divided. In a cluster those of a group are on one server.
const GROUPS: u32 = 64;

/// The longest time to the next attempt after a failed exchange, which doubles with each.
const RETRY: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

pub(super) struct Node<S: CasStore, A: Algorithm> {
    pub(super) shared: Arc<Shared<S>>,
    pub(super) keys: Keys,
    pub(super) name_prefix: String,
    pub(super) algorithm: A,
    times: Times,
    id: u64,
    pub(super) sequence_key: Arc<str>,
    is_running: CachePadded<AtomicBool>,
    wake: Notify,
    pub(super) progress: Mutex<Progress>,
}

/// The times of a machine, of which some follow from its interval unless they are set.
pub(super) struct Times {
    pub(super) interval: Duration,
    /// How long a request waits at most.
    pub(super) deadline: Option<Duration>,
    pub(super) life: Option<Duration>,
}

impl Times {
    fn deadline(&self) -> Duration {
        let deadline = self.interval * 2 + CALL_DEADLINE;
        self.deadline.unwrap_or(deadline)
    }

    /// A limit with these times.
    fn of(&self, limit: Limit) -> Limit {
        let life = (self.interval * 10).max(Duration::from_secs(1));
        let life = self.life.unwrap_or(life).max(self.interval * 2);
        Limit {
            interval: nanos(self.interval) / 1_000,
            life: nanos(life) / 1_000,
            ..limit
        }
    }
}

/// How far the exchanges are. It outlives the task. Its lock is taken before that of a key, if both are.
#[derive(Default)]
pub(super) struct Progress {
    sequence: u64,
    /// Batches without a reply. They are sent again unchanged, and others on the same keys or for the same sequence only
    /// after that.
    flights: Vec<Arc<Flight>>,
    time: Option<StoreTime>,
    /// The store knows of all that was used before.
    reported_until: Tick,
    /// Keys that are to be exchanged at once.
    urgent: Vec<u64>,
    flushes: Vec<oneshot::Sender<Result<(), StoreError>>>,
    is_closing: bool,
    /// Whether keys wait for the reply to a batch that is sent again, and whether they have waited for one that came.
    has_skipped: bool,
    is_behind: bool,
    /// Keys that were exchanged.
    pub(super) exchanged: u64,
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
        name: &str,
        algorithm: A,
        ahead: bool,
    ) -> Result<Self, ConfigError> {
        algorithm.validate()?;
        let prefix = store.settings().prefix;
        let shared = Arc::new(Shared::new(store, CALL_DEADLINE));
        let times = Times {
            interval: Duration::from_millis(100),
            deadline: None,
            life: None,
        };
        let limit = times.of(Limit {
            shape: Shape::of(&algorithm, unix_now())?,
            interval: 0,
            life: 0,
            ahead,
        });
        // Machines that count otherwise have values of their own.
        let name_prefix = format!("{{{prefix}:{name}:{}:", layout_of(&algorithm));
        let id = shared.next_random() >> 12;
        Ok(Self {
            shared,
            keys: Keys::new(100_000, limit),
            sequence_key: format!("{name_prefix}0}}#{id}").into(),
            name_prefix,
            algorithm,
            times,
            id,
            is_running: CachePadded(AtomicBool::new(false)),
            wake: Notify::new(),
            progress: Mutex::default(),
        })
    }

    /// Changes its times, before its first use.
    pub(super) fn set(&mut self, change: impl FnOnce(&mut Times)) {
        change(&mut self.times);
        let limit = Limit::clone(&self.keys.limit());
        self.keys.set_limit(&Arc::new(self.times.of(limit)));
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
        let is_due = |shard: &KeyShard| shard.keys.values().any(|entry| entry.budget.is_due());
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
        let decided = self.keys.decide(hash, name, request, again)?;
        Ok(decided.inspect_err(|_| self.exchange_now(hash)))
    }

    /// Waits until exchanges of a key have decided on a request.
    pub(super) async fn wait(
        self: Arc<Self>,
        (hash, name): (u64, Arc<str>),
        mut exchanged: Exchanged,
        (asked_at, cost): (Tick, u64),
    ) -> Result<Decision, StoreError> {
        let ends_at = asked_at.plus(self.times.deadline());
        loop {
            let ended = within(ends_at, exchanged).await;
            let ended = ended.ok_or_else(|| too_late(S::NAME, self.times.deadline()))?;
            // The key was forgotten, or the runtime of the task was shut down.
            ended.map_err(|_| shut_down(S::NAME))??;
            let request = (MonotonicClock.now(), cost);
            match self.decide(hash, || Arc::clone(&name), request, true)? {
                Ok(decision) => return Ok(decision),
                Err(next) => exchanged = next,
            }
        }
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
        if self.is_running.0.load(Ordering::Acquire) {
            return Ok(());
        }
        self.start()
    }

    #[cold]
    fn start(self: &Arc<Self>) -> Result<(), StoreError> {
        // In a busy runtime the exchange would come late, and the key with it.
        let runtime = self.shared.runtime()?;
        let is_running = &self.is_running.0;
        if !is_running.swap(true, Ordering::AcqRel) {
            lock(&self.progress).reported_until = MonotonicClock.now();
            runtime.spawn(Task(Arc::clone(self), JoinSet::new()).run());
            // A runtime that shuts down drops the task at once.
            if !is_running.load(Ordering::Acquire) {
                return Err(shut_down(S::NAME));
            }
        }
        Ok(())
    }
}

/// A machine's task, and batches that have failed and are sent again.
struct Task<S: CasStore, A: Algorithm>(Arc<Node<S, A>>, JoinSet<()>);

impl<S: CasStore, A: Algorithm> Task<S, A> {
    async fn run(mut self) {
        let node = Arc::clone(&self.0);
        self.send_all().await;
        let mut next = MonotonicClock.now();
        loop {
            within(next, node.wake.notified()).await;
            let now = MonotonicClock.now();
            let (flushes, is_closing, is_behind) = {
                let mut progress = lock(&node.progress);
                let is_behind = mem::take(&mut progress.is_behind);
                let flushes = mem::take(&mut progress.flushes);
                (flushes, progress.is_closing, is_behind)
            };
            let (is_tick, returns_all) = (now >= next, is_closing || !flushes.is_empty());
            let exchange = self.exchange(is_tick || is_behind, returns_all);
            if is_closing {
                let _ = within(now.plus(FLUSH_TIME), exchange).await;
                return;
            }
            let result = exchange.await;
            if is_tick {
                // Machines do not keep in step.
                let random = node.shared.random_below(node.times.interval / 5);
                next = now.plus(node.times.interval * 9 / 10 + random);
                if cfg!(feature = "metrics") {
                    RemoteMetrics(S::NAME).fleet_lag(&node.name_prefix, node.lag());
                }
            }
            for flush in flushes {
                let _ = flush.send(result.clone());
            }
        }
    }

    /// Exchanges the keys that cannot wait, and in a tick all that are due. An error is of a batch that has no reply.
    async fn exchange(&mut self, is_tick: bool, returns_all: bool) -> Result<(), StoreError> {
        let node = Arc::clone(&self.0);
        node.adopt_windows();
        let (is_all, begun) = (is_tick || returns_all, MonotonicClock.now());
        if returns_all {
            self.send_all().await;
        }
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
            lock(&node.progress).urgent.extend(later);
            batch.extend(due.drain(due.len().saturating_sub(MAX_BATCH - batch.len())..));
            let flights = node.collect(batch, returns_all);
            self.send(flights).await;
            if due.is_empty() {
                break;
            }
        }
        let mut progress = lock(&node.progress);
        if !progress.urgent.is_empty() {
            node.wake.notify_one();
        }
        if !progress.flights.is_empty() {
            let error = progress.last_error.clone();
            return Err(error.unwrap_or_else(|| node.shared.deadline_exceeded()));
        }
        if is_all {
            progress.reported_until = begun;
        }
        Ok(())
    }

    /// Sends the batches without a reply now, whenever they would be sent again.
    async fn send_all(&mut self) {
        self.1.shutdown().await;
        let flights = lock(&self.0.progress).flights.clone();
        self.send(flights).await;
    }

    /// Sends batches, and waits for their replies. One that fails is sent again, while others go on.
    async fn send(&mut self, flights: Vec<Arc<Flight>>) {
        let mut sending = JoinSet::new();
        for flight in flights {
            sending.spawn(Arc::clone(&self.0).send(flight));
        }
        while let Some(sent) = sending.join_next().await {
            if let Ok(Some(failed)) = sent {
                self.1.spawn(Arc::clone(&self.0).send_again(failed));
            }
        }
        while self.1.try_join_next().is_some() {}
    }
}

impl<S: CasStore, A: Algorithm> Node<S, A> {
    /// Makes batches of the keys that have something to report. Requests fail for those that a batch without a reply
    /// goes before.
    fn collect(&self, mut hashes: Vec<u64>, returns_all: bool) -> Vec<Arc<Flight>> {
        let mut progress = lock(&self.progress);
        hashes.sort_unstable();
        hashes.dedup();
        let (now, error) = (MonotonicClock.now(), progress.last_error.clone());
        let error = error.unwrap_or_else(|| self.shared.deadline_exceeded());
        let mut collected = BTreeMap::<_, Vec<_>>::new();
        for hash in hashes {
            let mut shard = self.keys.shard(hash);
            let Some(entry) = shard.keys.get_mut(&hash) else {
                continue;
            };
            // Keys that are swapped have a batch each, and those of several servers one for each group.
            let group = match S::RUNS {
                Runs::None => Some(hash),
                _ if self.shared.store.group_of("").is_none() => entry.group(),
                _ => None,
            };
            let goes_before = |flight: &Arc<Flight>| {
                flight.group.is_none() || group.is_none() || flight.group == group
            };
            let is_behind = match S::RUNS {
                Runs::None => progress.flights.len() >= MAX_FLIGHTS,
                _ => progress.flights.iter().any(goes_before),
            };
            if entry.is_in_flight || is_behind {
                progress.has_skipped = true;
                entry.fail(&error);
                continue;
            }
            if !entry.budget.is_due() {
                continue;
            }
            entry.is_in_flight = true;
            let time = progress.time.as_ref();
            let report = entry.budget.collect(time, now, returns_all);
            let name = format!("{}{}", self.name_prefix, entry.name);
            let collected = collected.entry(group).or_default();
            collected.push((hash, (name.into(), report)));
        }
        let mut flights = Vec::with_capacity(collected.len());
        for (group, some) in collected {
            progress.sequence += 1;
            let (hashes, keys) = some.into_iter().unzip();
            let batch = Batch {
                machine: self.id,
                sequence: progress.sequence,
                limit: self.keys.limit(),
                sequence_key: Arc::clone(&self.sequence_key),
                keys,
            };
            flights.push(Arc::new(Flight {
                batch,
                hashes,
                group,
                begun: now,
                sent: tokio::sync::Mutex::default(),
            }));
        }
        progress.flights.extend(flights.iter().cloned());
        flights
    }

    /// Sends a batch. Returns it if it has to be sent again.
    async fn send(self: Arc<Self>, flight: Arc<Flight>) -> Option<Arc<Flight>> {
        let sent = MonotonicClock.now();
        let result = exchange(&self.shared, &flight).await;
        RemoteMetrics(S::NAME).call_ended(sent, CALL_DEADLINE, result.as_ref().err());
        match result {
            Ok(replies) => {
                self.adopt(&flight, &replies, sent);
                None
            }
            Err(error) => self.fail(&flight, error).then_some(flight),
        }
    }

    /// Sends a batch until it has a reply: sooner than in an interval, which may be an hour, and not in step with other
    /// machines.
    async fn send_again(self: Arc<Self>, flight: Arc<Flight>) {
        let (mut flight, mut retry) = (Some(flight), RETRY[0]);
        while let Some(failed) = flight {
            // All batches together are not sent faster than a store that is slow replies.
            let pace = Duration::from_millis(lock(&self.progress).flights.len() as u64);
            self.shared.pause(retry.max(pace)).await;
            flight = Arc::clone(&self).send(failed).await;
            retry = (2 * retry).min(RETRY[1]);
        }
        let mut progress = lock(&self.progress);
        progress.is_behind |= mem::take(&mut progress.has_skipped);
        drop(progress);
        self.wake.notify_one();
    }

    /// Lets requests go on without the reply to a batch. Returns whether it has to be sent again: not one that only asks
    /// for units, if none of its swaps was sent, unless its key has kept others waiting.
    fn fail(&self, flight: &Arc<Flight>, error: StoreError) -> bool {
        let mut progress = lock(&self.progress);
        let is_unsent = flight.sent.try_lock().is_ok_and(|sent| sent.is_empty());
        let asks = |(_, report): &(_, Report)| {
            report.epoch == 0 && report.charged + report.given_back == 0 && !report.resets
        };
        let is_quick = MonotonicClock.now().since(flight.begun) < CALL_DEADLINE / 2;
        let is_over = S::RUNS == Runs::None && is_unsent && is_quick;
        let is_over = is_over && flight.batch.keys.iter().all(asks);
        if is_over {
            progress.flights.retain(|other| !Arc::ptr_eq(other, flight));
        }
        for hash in &flight.hashes {
            if let Some(entry) = self.keys.shard(*hash).keys.get_mut(hash) {
                entry.is_in_flight &= !is_over;
                entry.fail(&error);
            }
        }
        progress.last_error = Some(error);
        !is_over
    }

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
        if progress.flights.is_empty() {
            progress.last_error = None;
        }
        progress.exchanged += flight.hashes.len() as u64;
        for (hash, reply) in flight.hashes.iter().zip(&replies.keys) {
            let mut shard = self.keys.shard(*hash);
            let KeyShard { limit, keys } = &mut *shard;
            let Some(entry) = keys.get_mut(hash) else {
                continue;
            };
            entry.is_in_flight = false;
            let adopted = reply.map(|reply| entry.budget.adopt(limit, &reply, &time));
            entry.wake(&adopted.ok_or_else(|| damaged(S::NAME)));
        }
    }
}

/// Lets another task take over, if the runtime is shut down.
impl<S: CasStore, A: Algorithm> Drop for Task<S, A> {
    fn drop(&mut self) {
        let node = &self.0;
        node.is_running.0.store(false, Ordering::Release);
        lock(&node.progress).flushes.clear();
        RemoteMetrics(S::NAME).fleet_lag(&node.name_prefix, Duration::ZERO);
        let error = shut_down(S::NAME);
        node.keys.fail_waiters(&error, MonotonicClock.now());
    }
}
