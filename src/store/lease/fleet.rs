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

use super::clock::LeaseClock;
use super::exchange::{Due, Outgoing};
use super::node::Node;
use super::plan::Settings;
use crate::algorithm::{Algorithm, Inherit};
use crate::clock::{Clock, Tick};
use crate::error::{ConfigError, StoreError};
use crate::store::{
    cas::{
        CasStore,
        decider::Decider,
        exchange::{Exchanger, Next},
        lease::LeaseReply,
        policy::CasPolicy,
        report::Change,
        shared::Shared,
    },
    remote::{LivePolicy, catch_panic},
    synced::WhenCutOff,
};
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// The most exchanges that are under way at a time.
pub(super) const MAX_EXCHANGES: usize = 500;

/// The task does not run.
const STOPPED: u64 = 0;
/// The task runs, and reaches the store.
const IN_TOUCH: u64 = 1;
/// The task runs, and has not reached the store for some time.
const CUT_OFF: u64 = 2;

pub(super) struct Fleet<S: CasStore, A: Algorithm> {
    pub(super) node: Node<A>,
    pub(super) clock: LeaseClock,
    pub(super) settings: Settings,
    pub(super) exchanger: Exchanger<S>,
    pub(super) policy: LivePolicy<CasPolicy<S, A>>,
    pub(super) name_prefix: String,
    /// Wakes the task before its next look.
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
        let deadline = settings
            .renewal()
            .clamp(Duration::from_millis(50), Duration::from_secs(1));
        let clock = LeaseClock::of_store(store.has_one_clock());
        let shared = Arc::new(Shared::new(store, deadline));
        let node = Node::new(algorithm.clone(), settings.clone(), &clock)?;
        let change_key = format!("{{{prefix}:{name}}}:quota");
        let policy = CasPolicy::new(decider, Arc::clone(&shared), change_key.into());
        Ok(Self {
            node,
            clock,
            settings,
            exchanger: Exchanger::new(shared),
            policy: LivePolicy::new(policy),
            // Records of limits that are not leased do not say which units are out.
            name_prefix: format!("{{{prefix}:{name}+leases:"),
            wake: Notify::new(),
            mode: AtomicU64::new(STOPPED),
            is_closing: AtomicBool::new(false),
            exchanges: Exchanges::default(),
            last_error: Mutex::default(),
        })
    }

    /// What all calls of the store use.
    pub(super) fn shared(&self) -> &Shared<S> {
        &self.exchanger.shared
    }

    /// What happens instead of a decision, while the store cannot be reached.
    pub(super) fn cut_off(&self) -> Option<WhenCutOff> {
        let is_cut_off = self.mode.load(Ordering::Relaxed) == CUT_OFF;
        is_cut_off.then_some(self.settings.when_cut_off)
    }

    /// Notes whether the task reaches the store.
    pub(super) fn set_cut_off(&self, is_cut_off: bool) {
        let mode = if is_cut_off { CUT_OFF } else { IN_TOUCH };
        self.mode.store(mode, Ordering::Relaxed);
    }

    /// Whether the task runs. Without it, leases are not renewed or returned.
    #[inline]
    pub(super) fn is_running(&self) -> bool {
        self.mode.load(Ordering::Relaxed) != STOPPED
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
            "{}: no exchange for {:?}{cause}",
            S::NAME,
            self.settings.tick() * self.settings.cut_off_after
        );
        StoreError::new(message, true)
    }

    /// Sends one report, and goes on with what the store has granted.
    async fn exchange(&self, outgoing: &Outgoing) -> Result<(), StoreError> {
        let policy = self.policy.active();
        let mut may_be_stored = false;
        let sent = self.send(&policy.decider, outgoing, &mut may_be_stored);
        match sent.await {
            Ok(mut reply) => {
                self.exchanges.done.fetch_add(1, Ordering::Relaxed);
                let now = self.clock.now();
                let (current, decided_by) = (self.node.algorithm(), &policy.decider.algorithm);
                if current.quota() != decided_by.quota() {
                    current.rescale(&mut reply.state, decided_by, now, Inherit::AsIs);
                }
                self.node.adopt(outgoing.hash, now, &reply);
                Ok(())
            }
            Err(error) => {
                self.exchanges.failed.fetch_add(1, Ordering::Relaxed);
                if error.is_transient() {
                    self.exchanges.unanswered.fetch_add(1, Ordering::Relaxed);
                    *lock(&self.last_error) = Some(error.clone());
                }
                if may_be_stored {
                    self.node.fail(outgoing.hash, &error);
                } else {
                    self.node.refuse(outgoing.hash, &error);
                }
                Err(error)
            }
        }
    }

    /// Sets `may_be_stored` before the report may reach the store.
    async fn send(
        &self,
        decider: &Decider<A>,
        outgoing: &Outgoing,
        may_be_stored: &mut bool,
    ) -> Result<LeaseReply<A::State>, StoreError> {
        let replaces = outgoing.sent.changes.contains(&Change::Reset);
        let learn = |sent_at, server_time| self.clock.learn(sent_at, server_time);
        let step = |record: &_, now: Tick| {
            let report = self.node.report(outgoing, now);
            // A swap before it found another version.
            *may_be_stored = false;
            let (reply, record) = decider.lease(record, now, &report)?;
            *may_be_stored = record.is_some();
            let record = record.map(|record| {
                let ttl = Decider::<A>::time_to_live(&record, now);
                (record, ttl)
            });
            Ok(Next { reply, record })
        };
        let name = &outgoing.name;
        self.exchanger.exchange(name, replaces, learn, step).await
    }

    /// How long the oldest change has waited that the store may not have.
    pub(super) fn lag(&self) -> Duration {
        let now = self.clock.now();
        let mut longest = Duration::ZERO;
        for shard in self.node.keys.shards() {
            let unsent = shard.values().filter(|key| {
                let has_changes = !key.pending.unsent.is_empty();
                has_changes
                    || key
                        .sent
                        .as_ref()
                        .is_some_and(|sent| !sent.changes.is_empty())
            });
            let lags = unsent.map(|key| now.since(key.pending.since));
            longest = longest.max(lags.max().unwrap_or_default());
        }
        longest
    }

    /// Returns all leases, and reports what is left. What fails is tried twice more.
    pub(super) async fn flush(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut result = Ok(());
        for _ in 0..4 {
            for exchanged in self.wait_for_exchanges() {
                // The result is that of the next round.
                let _ = exchanged.await;
            }
            let left = self.node.collect(self.clock.now(), Due::Return, usize::MAX);
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
            if self.node.keys.len() == 0 {
                return Ok(());
            }
        }
        result
    }

    /// Completes when the exchanges end that are under way.
    fn wait_for_exchanges(&self) -> Vec<oneshot::Receiver<Result<(), StoreError>>> {
        let mut receivers = Vec::new();
        for mut shard in self.node.keys.shards() {
            for key in shard.values_mut().filter(|key| key.pending.in_flight) {
                let (waiter, receiver) = oneshot::channel();
                key.pending.waiters.push(waiter);
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
        let result = catch_panic(S::NAME, self.fleet.exchange(&self.outgoing)).await?;
        self.is_over = true;
        result
    }
}

impl<S: CasStore, A: Algorithm> Drop for UnderWay<S, A> {
    fn drop(&mut self) {
        if !self.is_over {
            let message = format!("{}: the exchange was given up", S::NAME);
            let error = StoreError::new(message, true);
            self.fleet.node.fail(self.outgoing.hash, &error);
        }
    }
}
