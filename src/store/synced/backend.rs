//! A limiter of a fleet that decides in memory.

use std::{fmt, sync::Arc, time::Duration};

use super::fleet::{Fleet, Settings};
use super::future::SyncedFuture;
use super::node::MachineTable;
use super::rules::Rules;
use crate::algorithm::{Algorithm, IntoAlgorithm, Portable, quotas};
use crate::backend::{Backend, IntoBackend, Losses, Op};
use crate::clock::{Clock, Tick};
use crate::decision::{Decision, Verdict};
use crate::error::{ConfigError, StoreError, expect_valid};
use crate::key::Key;
use crate::quota::Quota;
use crate::receipt::Receipt;
use crate::store::{
    apply::taken_at,
    cas::{CasStore, report::Change},
    fleet::{FleetFuture, Machine, Owner, WhenCutOff, ensure_running, flush, set_quota},
    remote::{BreakerCounts, RemoteKey, check_name},
};
use crate::sync::Ordering;

const DEFAULT_INTERVAL: Duration = Duration::from_millis(100);
const DEFAULT_CAPACITY: usize = 100_000;
const DEFAULT_CUT_OFF_AFTER: u32 = 3;

/// A limit of a fleet that every machine decides in memory.
///
/// Clones are the same limiter. See the [module](super) for what the fleet admits at most.
///
/// ```
/// use tower_throttle::{Quota, TokenBucket, store::{cas::MemoryStore, synced::Synced}};
/// use tower_throttle::store::Backend;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_throttle::StoreError> {
/// let store = MemoryStore::new();
/// let limit = Synced::new(store, "api", TokenBucket::new(Quota::per_second(100)));
/// assert!(limit.decide("alice", 1).await?.is_admitted());
/// // Before the program ends: sends what was admitted since the last exchange.
/// limit.close().await?;
/// # Ok(())
/// # }
/// ```
pub struct Synced<S: CasStore, A: Portable> {
    owner: Arc<Owner<Fleet<S, A>>>,
    /// The table of the machine, beside it for the fast path.
    table: MachineTable<A>,
}

/// Settings of a [`Synced`] limiter.
#[derive(Clone, Debug)]
#[must_use = "settings have no effect before `build`"]
pub struct SyncedBuilder<S> {
    store: S,
    prefix: String,
    settings: Settings,
}

/// Counts of what a [`Synced`] limiter has exchanged since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyncedCounts {
    /// Keys whose state was exchanged with the store.
    pub exchanged: u64,
    /// Exchanges that failed. They are tried again in the next interval.
    pub failed: u64,
    /// Writes that found another version, because another machine had changed the key.
    pub conflicts: u64,
    /// Keys in use: with changes that the store may not have yet, or used in the last interval.
    pub pending: usize,
    /// Machines that use the limit, as configured or as of the last exchanges.
    pub nodes: u64,
    /// How often a change was not reported, because too many keys had changes.
    pub lost: u64,
}

impl<S: CasStore, A: Portable> Synced<S, A> {
    #[inline]
    fn fleet(&self) -> &Arc<Fleet<S, A>> {
        &self.owner.0
    }

    /// A limit with default settings. Limits of one name in one store are one limit.
    ///
    /// # Panics
    /// If the name is not 1 to 64 letters, digits and any of `. _ -`, or if the algorithm is refused;
    /// [`SyncedBuilder::build`] returns an error instead.
    #[track_caller]
    pub fn new<I>(store: S, name: &str, algorithm: I) -> Self
    where
        I: IntoAlgorithm<Algorithm = A>,
    {
        expect_valid(SyncedBuilder::new(store).build(name, algorithm))
    }

    /// Sends what was admitted since the last exchange, and waits until the store has it.
    ///
    /// Call it before the program ends. A limiter that is dropped sends the rest in a task, which does
    /// not delay the end of the program. The limiter can be used on afterwards.
    ///
    /// # Errors
    /// If the store did not get all of it: what is left is lost with the process.
    pub async fn close(&self) -> Result<(), StoreError> {
        flush(self.fleet()).await
    }

    /// Changes the quota for all keys and for the whole fleet. Used units stay used.
    ///
    /// The change is kept in the store until the next one, across restarts. Every other limiter of
    /// this name adopts it within a second while it is in use, if it was configured with the same
    /// quota as this one. Setting the configured quota ends the change.
    ///
    /// # Errors
    /// If the algorithm has several quotas, as a set of limits does; or if the change cannot be
    /// stored. After a transient error it may have been stored: set it again.
    ///
    /// ```
    /// use tower_throttle::{Quota, TokenBucket, store::{cas::MemoryStore, synced::Synced}};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_throttle::StoreError> {
    /// let bucket = TokenBucket::new(Quota::per_second(100));
    /// let limit = Synced::new(MemoryStore::new(), "api", bucket);
    /// limit.set_quota(Quota::per_second(200)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set_quota(&self, quota: Quota) -> Result<(), StoreError> {
        set_quota(&**self.fleet(), quota).await
    }

    /// How long the oldest change has waited that the store may not have yet. Above two intervals, the
    /// store does not keep up or is not reached. With the feature `metrics`, the gauge
    /// `tower_throttle_synced_lag_seconds` shows it once per second at most.
    ///
    /// It looks at every key with changes.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Quota, TokenBucket, store::{cas::MemoryStore, synced::Synced}};
    ///
    /// let bucket = TokenBucket::new(Quota::per_second(100));
    /// let limit = Synced::new(MemoryStore::new(), "api", bucket);
    /// assert_eq!(limit.lag(), Duration::ZERO);
    /// ```
    pub fn lag(&self) -> Duration {
        self.fleet().lag()
    }

    /// What it has exchanged since it was made.
    pub fn counts(&self) -> SyncedCounts {
        let fleet = self.fleet();
        SyncedCounts {
            exchanged: fleet.link.done.load(Ordering::Relaxed),
            failed: fleet.link.failed.load(Ordering::Relaxed),
            conflicts: fleet.link.shared().conflicts.load(Ordering::Relaxed),
            pending: fleet.node.pending.len(),
            nodes: fleet.node.nodes(),
            lost: fleet.node.lost(),
        }
    }

    /// Whether the store could not be reached for so long that this machine decides alone.
    pub fn is_cut_off(&self) -> bool {
        self.fleet().cut_off().is_some()
    }

    /// Whether its circuit breaker is open, and how often it opened.
    pub fn breaker(&self) -> BreakerCounts {
        self.fleet().link.shared().breakers.counts()
    }

    /// Out of line, so that it writes the decision to where the caller keeps it.
    #[inline(never)]
    fn decide_in_table(
        &self,
        hash: u64,
        now: Tick,
        cost: u64,
        slow_path: &dyn Fn() -> FleetFuture<Fleet<S, A>>,
    ) -> FleetFuture<Fleet<S, A>> {
        if !self.fleet().link.is_in_touch() {
            return slow_path();
        }
        match self.table.try_decide_hashed(hash, now, cost) {
            Some(decision) => self.decided(decision, now),
            None => slow_path(),
        }
    }

    #[cold]
    #[inline(never)]
    fn decide_on_slow_path<K: RemoteKey + ?Sized>(
        &self,
        key: &K,
        hash: u64,
        now: Tick,
        cost: u64,
    ) -> FleetFuture<Fleet<S, A>> {
        let fleet = self.fleet();
        FleetFuture::decide_slow(fleet, || fleet.link.name_of(key), (hash, cost), now)
    }

    #[inline]
    fn decided(&self, decision: Decision, now: Tick) -> FleetFuture<Fleet<S, A>> {
        let moment = match decision.verdict {
            Verdict::Wait(_) => self.moment_of_turn(decision.verdict, now),
            _ => now,
        };
        FleetFuture::ready(Ok(decision.with_receipt(Receipt::at(moment.as_nanos()))))
    }

    fn change<K>(&self, key: &K, change: Change, now: Tick) -> Result<Decision, StoreError>
    where
        K: Key + RemoteKey + ?Sized,
    {
        let fleet = self.fleet();
        ensure_running(fleet)?;
        let hash = fleet.node.hash(key);
        let decision = fleet
            .node
            .change(hash, || fleet.link.name_of(key), now, change);
        Ok(decision.with_receipt(Receipt::at(now.as_nanos())))
    }

    /// See [`taken_at`].
    #[cold]
    #[inline(never)]
    fn moment_of_turn(&self, verdict: Verdict, now: Tick) -> Tick {
        taken_at(&self.fleet().node.algorithm(), verdict, now)
    }
}

impl<S: CasStore> SyncedBuilder<S> {
    /// The default settings.
    pub fn new(store: S) -> Self {
        Self {
            store,
            prefix: "throttle".to_owned(),
            settings: Settings {
                interval: DEFAULT_INTERVAL,
                rules: Rules::default(),
                capacity: DEFAULT_CAPACITY,
                when_cut_off: WhenCutOff::default(),
                cut_off_after: DEFAULT_CUT_OFF_AFTER,
            },
        }
    }

    /// Sets how often a key in use is exchanged with the store, by default every 100 ms. Intervals are
    /// up to a tenth shorter, so that machines do not keep in step.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Quota, TokenBucket, store::{cas::MemoryStore, synced::SyncedBuilder}};
    ///
    /// let limit = SyncedBuilder::new(MemoryStore::new())
    ///     .interval(Duration::from_secs(1))
    ///     .build("api", TokenBucket::new(Quota::per_minute(6_000)))?;
    /// # let _ = limit;
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn interval(mut self, interval: Duration) -> Self {
        self.settings.interval = interval;
        self
    }

    /// Bounds how much one machine admits without the store's knowledge. A request beyond it waits for
    /// an exchange of its key.
    ///
    /// N machines then exceed the limit by at most N - 1 budgets, however long the store cannot be
    /// reached. A cost above the budget counts as one budget. Requests fail while the store cannot be reached
    /// and the budget is used up.
    ///
    /// ```
    /// use tower_throttle::{Quota, SlidingLog, store::{cas::MemoryStore, synced::SyncedBuilder}};
    ///
    /// let limit = SyncedBuilder::new(MemoryStore::new())
    ///     .strict_budget(5)
    ///     .build("export", SlidingLog::new(Quota::per_hour(1_000)))?;
    /// # let _ = limit;
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn strict_budget(mut self, budget: u32) -> Self {
        self.settings.rules.strict_budget = Some(budget);
        self
    }

    /// Sets how many machines there are. By default, those count that have lately reported the key.
    ///
    /// It decides how large the share of a machine is: what it admits if others have used up the
    /// limit, and while the store cannot be reached.
    pub fn nodes(mut self, nodes: u64) -> Self {
        self.settings.rules.nodes = Some(nodes);
        self
    }

    /// Sets how many keys the table of a machine holds, by default 100,000.
    pub fn capacity(mut self, keys: usize) -> Self {
        self.settings.capacity = keys;
        self
    }

    /// Sets what happens after `intervals` without a reply of the store, by default [`WhenCutOff::Share`]
    /// after 3.
    ///
    /// ```
    /// use tower_throttle::{FixedWindow, Quota, store::cas::MemoryStore};
    /// use tower_throttle::store::synced::{SyncedBuilder, WhenCutOff};
    ///
    /// let limit = SyncedBuilder::new(MemoryStore::new())
    ///     .when_cut_off(WhenCutOff::Fail, 10)
    ///     .build("api", FixedWindow::new(Quota::per_minute(600)))?;
    /// # let _ = limit;
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn when_cut_off(mut self, behavior: WhenCutOff, intervals: u32) -> Self {
        self.settings.when_cut_off = behavior;
        self.settings.cut_off_after = intervals;
        self
    }

    /// Sets the start of the names of all keys, by default `throttle`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Builds a limit. Limits of one name and prefix in one store are one limit.
    ///
    /// # Errors
    /// If the name or the prefix is not 1 to 64 letters, digits and any of `. _ -`, if a setting is out
    /// of range, or if the algorithm is refused.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Quota, TokenBucket, store::{cas::MemoryStore, synced::SyncedBuilder}};
    ///
    /// let builder = SyncedBuilder::new(MemoryStore::new()).interval(Duration::ZERO);
    /// let error = builder.build("api", TokenBucket::new(Quota::per_second(10))).unwrap_err();
    /// assert_eq!(error.to_string(), "interval: 0ns is not allowed; give 1 ms to 1 hour");
    /// ```
    pub fn build<I: IntoAlgorithm<Algorithm: Portable>>(
        self,
        name: &str,
        algorithm: I,
    ) -> Result<Synced<S, I::Algorithm>, ConfigError> {
        check_name("prefix", &self.prefix)?;
        check_name("name", name)?;
        self.settings.check()?;
        let algorithm = algorithm.into_algorithm();
        if algorithm.facts().counts_denials {
            return Err(ConfigError::Unsupported {
                what: "a lockout that counts denials in `Synced`",
                instead: "use `Cas`, or `Local` on each machine",
            });
        }
        let fleet = Fleet::new(self.store, &self.prefix, name, &algorithm, self.settings)?;
        Ok(Synced {
            table: fleet.node.table.clone(),
            owner: Arc::new(Owner(Arc::new(fleet))),
        })
    }
}

impl<K, S, A> Backend<K> for Synced<S, A>
where
    K: Key + RemoteKey + ?Sized,
    S: CasStore,
    A: Portable,
{
    type Future = SyncedFuture<S, A>;

    const HAS_FAST_PATH: bool = true;

    fn apply(&self, key: &K, op: Op) -> SyncedFuture<S, A> {
        let fleet = self.fleet();
        let now = fleet.clock.now();
        let receipt_moment = |receipt: Receipt| Tick::from_nanos(receipt.moment()).min(Tick::MAX);
        let change = match op {
            Op::Take(cost) => return self.decide(key, cost),
            Op::Peek(cost) => {
                let decision = fleet.node.peek(fleet.node.hash(key), now, cost);
                let receipt = Receipt::at(now.as_nanos());
                return SyncedFuture::ready(Ok(decision.with_receipt(receipt)));
            }
            Op::Refund(cost, receipt) => Change::Refund {
                taken_at: receipt_moment(receipt),
                cost,
            },
            Op::Cancel(cost, receipt) => Change::Cancel {
                taken_at: receipt_moment(receipt),
                cost,
            },
            Op::Charge(cost) => Change::Charge {
                taken_at: now.into(),
                cost,
            },
            Op::Forgive(cost, receipt) => Change::Forgive {
                taken_at: receipt_moment(receipt),
                cost,
            },
            Op::Ban(length) => Change::Ban { at: now, length },
            Op::Reset => Change::Reset,
        };
        SyncedFuture::ready(self.change(key, change, now))
    }

    #[expect(clippy::inline_always, reason = "so that no decision is copied")]
    #[inline(always)]
    fn decide(&self, key: &K, cost: u64) -> SyncedFuture<S, A> {
        let hash = self.table.hash(key);
        let now = self.table.now_for(hash);
        let slow_path = || self.decide_on_slow_path(key, hash, now, cost);
        SyncedFuture(self.decide_in_table(hash, now, cost, &slow_path))
    }

    #[expect(clippy::inline_always, reason = "it is the fast path of a layer")]
    #[inline(always)]
    fn try_admit(&self, key: &K, cost: u64) -> bool {
        let hash = self.table.hash(key);
        let now = self.table.now_for(hash);
        self.fleet().link.is_in_touch() && self.table.try_admit_hashed(hash, now, cost)
    }

    fn receipt_at_turn(&self, _: &K, receipt: Receipt) -> Receipt {
        let now = self.fleet().clock.now().as_nanos();
        Receipt::at(receipt.moment().min(now))
    }

    fn current_decision(&self, key: &K, cost: u64) -> Option<Decision> {
        let node = &self.fleet().node;
        Some(node.peek(node.hash(key), self.fleet().clock.now(), cost))
    }

    fn losses(&self) -> Losses {
        self.fleet().node.losses()
    }

    fn quotas(&self) -> Vec<Quota> {
        quotas(&self.fleet().node.algorithm())
    }

    fn limits(&self) -> usize {
        self.fleet().node.algorithm().facts().limits
    }
}

impl<S: CasStore, A: Portable> IntoBackend for Synced<S, A> {
    type Backend = Self;

    fn into_backend(self) -> Self {
        self
    }
}

/// Manual impl: derive would require `S: Clone` and `A: Clone` of the contents, which are shared.
impl<S: CasStore, A: Portable> Clone for Synced<S, A> {
    fn clone(&self) -> Self {
        Self {
            owner: Arc::clone(&self.owner),
            table: self.table.clone(),
        }
    }
}

impl<S: CasStore, A: Portable> fmt::Debug for Synced<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fleet = self.fleet();
        f.debug_struct("Synced")
            .field("name_prefix", &fleet.link.name_prefix)
            .field("algorithm", &fleet.node.algorithm())
            .field("settings", &fleet.settings)
            .field("store", &fleet.link.shared().store)
            .finish_non_exhaustive()
    }
}
