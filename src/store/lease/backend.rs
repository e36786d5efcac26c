//! A limiter of units that are taken ahead.

use std::{fmt, sync::Arc, time::Duration};

use super::fleet::Fleet;
use super::future::LeasedFuture;
use super::node::MachineTable;
use crate::algorithm::{Portable, quotas};
use crate::backend::{Backend, IntoBackend, Losses, Op};
use crate::clock::{Clock, Tick};
use crate::decision::Decision;
use crate::error::StoreError;
use crate::key::Key;
use crate::quota::Quota;
use crate::receipt::Receipt;
use crate::store::{
    cas::{CasStore, report::Change},
    fleet::{FleetFuture, Machine, Owner, ensure_running, flush, set_quota},
    remote::{BreakerCounts, RemoteKey},
};
use crate::sync::Ordering;

/// A limit of a fleet whose machines take units ahead and use them in memory.
///
/// Clones are the same limiter. See the [module](super) for when to use it and what it costs.
///
/// ```
/// use tower_throttle::{Quota, TokenBucket, store::{cas::MemoryStore, lease::Leased}};
/// use tower_throttle::store::Backend;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_throttle::StoreError> {
/// let store = MemoryStore::new();
/// let limit = Leased::new(store, "api", TokenBucket::new(Quota::per_second(100)), 20);
/// assert!(limit.decide("alice", 1).await?.is_admitted());
/// // Before the program ends: gives back what was not used.
/// limit.close().await?;
/// # Ok(())
/// # }
/// ```
pub struct Leased<S: CasStore, A: Portable> {
    owner: Arc<Owner<Fleet<S, A>>>,
    /// The table of the machine, beside it for the fast path.
    table: MachineTable<A>,
}

/// Counts of what a [`Leased`] limiter has exchanged since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeasedCounts {
    /// Exchanges with the store: units were taken or returned, or nothing was left.
    pub exchanged: u64,
    /// Exchanges that failed. They are tried again.
    pub failed: u64,
    /// Writes that found another version, because another machine had changed the key.
    pub conflicts: u64,
    /// Keys of which this machine holds units, or has something to report.
    pub keys: usize,
    /// Machines that use the limit, as configured or as of the last exchange.
    pub nodes: u64,
    /// Requests that were denied because this machine holds units of too many keys.
    pub full: u64,
    /// Units that were reported as used although they may not have been, because another key has taken
    /// the place of theirs in the full table; and changes that were not reported because there were too
    /// many keys.
    pub lost: u64,
}

impl<S: CasStore, A: Portable> Leased<S, A> {
    pub(super) fn of(fleet: Fleet<S, A>) -> Self {
        Self {
            table: fleet.node.table.clone(),
            owner: Arc::new(Owner(Arc::new(fleet))),
        }
    }

    #[inline]
    fn fleet(&self) -> &Arc<Fleet<S, A>> {
        &self.owner.0
    }

    /// Gives back all units that were not used, reports those that were, and waits until the store has
    /// it.
    ///
    /// Call it before the program ends. A limiter that is dropped does it in a task, which does not
    /// delay the end of the program: then the units count as used when their leases end. The limiter
    /// can be used on afterwards.
    ///
    /// # Errors
    /// If the store did not get all of it.
    pub async fn close(&self) -> Result<(), StoreError> {
        flush(self.fleet()).await
    }

    /// Changes the quota for all keys and for the whole fleet. Used units stay used, and units that are
    /// held can be used.
    ///
    /// The change is kept in the store until the next one, across restarts. Every other limiter of
    /// this name adopts it within about a second and a twelfth of the life of a lease while it is in
    /// use, if it was configured with the same quota as this one. Setting the configured quota ends the
    /// change.
    ///
    /// # Errors
    /// If the algorithm has several quotas, as a set of limits does; or if the change cannot be
    /// stored. After a transient error it may have been stored: set it again.
    ///
    /// ```
    /// use tower_throttle::{Quota, TokenBucket, store::{cas::MemoryStore, lease::Leased}};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_throttle::StoreError> {
    /// let bucket = TokenBucket::new(Quota::per_second(100));
    /// let limit = Leased::new(MemoryStore::new(), "api", bucket, 10);
    /// limit.set_quota(Quota::per_second(200)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set_quota(&self, quota: Quota) -> Result<(), StoreError> {
        set_quota(&**self.fleet(), quota).await
    }

    /// How long the oldest change has waited that the store may not have yet. If it is above a third of
    /// the life of a lease, the store does not keep up or is not reached. With the feature `metrics`, the
    /// gauge `tower_throttle_leased_lag_seconds` shows it once per second at most.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Quota, TokenBucket, store::{cas::MemoryStore, lease::Leased}};
    ///
    /// let bucket = TokenBucket::new(Quota::per_second(100));
    /// let limit = Leased::new(MemoryStore::new(), "api", bucket, 10);
    /// assert_eq!(limit.lag(), Duration::ZERO);
    /// ```
    pub fn lag(&self) -> Duration {
        self.fleet().lag()
    }

    /// What it has exchanged since it was made.
    pub fn counts(&self) -> LeasedCounts {
        let fleet = self.fleet();
        LeasedCounts {
            exchanged: fleet.link.done.load(Ordering::Relaxed),
            failed: fleet.link.failed.load(Ordering::Relaxed),
            conflicts: fleet.link.shared().conflicts.load(Ordering::Relaxed),
            keys: fleet.node.keys.len(),
            nodes: fleet.node.nodes(),
            full: fleet.node.full(),
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
        match self.table.try_decide_hashed(hash, now, cost) {
            Some(decision) => decided(decision, now),
            None => slow_path(),
        }
    }

    #[cold]
    #[inline(never)]
    fn decide_on_slow_path<K: RemoteKey + ?Sized>(
        &self,
        key: &K,
        hash: u64,
        cost: u64,
    ) -> FleetFuture<Fleet<S, A>> {
        let fleet = self.fleet();
        let now = fleet.clock.now();
        FleetFuture::decide_slow(fleet, || fleet.link.name_of(key), (hash, cost), now)
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
        if fleet.node.has_urgent() {
            fleet.link.wake.notify_one();
        }
        Ok(decision.with_receipt(Receipt::at(now.as_nanos())))
    }
}

#[inline]
fn decided<M: Machine>(decision: Decision, now: Tick) -> FleetFuture<M> {
    FleetFuture::ready(Ok(decision.with_receipt(Receipt::at(now.as_nanos()))))
}

impl<K, S, A> Backend<K> for Leased<S, A>
where
    K: Key + RemoteKey + ?Sized,
    S: CasStore,
    A: Portable,
{
    type Future = LeasedFuture<S, A>;

    const HAS_FAST_PATH: bool = true;

    fn apply(&self, key: &K, op: Op) -> LeasedFuture<S, A> {
        let fleet = self.fleet();
        let now = fleet.clock.now();
        let taken_at = |receipt: Receipt| Tick::from_nanos(receipt.moment()).min(Tick::MAX);
        let change = match op {
            Op::Take(cost) => return self.decide(key, cost),
            Op::Peek(cost) => {
                let decision = fleet.node.peek(fleet.node.hash(key), now, cost);
                return LeasedFuture::ready(Ok(decision));
            }
            Op::Refund(cost, receipt) | Op::Cancel(cost, receipt) => Change::Refund {
                taken_at: taken_at(receipt),
                cost,
            },
            Op::Forgive(cost, receipt) => Change::Forgive {
                taken_at: taken_at(receipt),
                cost,
            },
            Op::Charge(cost) => Change::Charge {
                taken_at: now.into(),
                cost,
            },
            Op::Ban(length) => Change::Ban { at: now, length },
            Op::Reset => Change::Reset,
        };
        LeasedFuture::ready(self.change(key, change, now))
    }

    #[expect(clippy::inline_always, reason = "so that no decision is copied")]
    #[inline(always)]
    fn decide(&self, key: &K, cost: u64) -> LeasedFuture<S, A> {
        let hash = self.table.hash(key);
        let now = self.table.now_for(hash);
        let slow_path = || self.decide_on_slow_path(key, hash, cost);
        LeasedFuture(self.decide_in_table(hash, now, cost, &slow_path))
    }

    #[expect(clippy::inline_always, reason = "it is the fast path of a layer")]
    #[inline(always)]
    fn try_admit(&self, key: &K, cost: u64) -> bool {
        let hash = self.table.hash(key);
        let now = self.table.now_for(hash);
        self.table.try_admit_hashed(hash, now, cost)
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

impl<S: CasStore, A: Portable> IntoBackend for Leased<S, A> {
    type Backend = Self;

    fn into_backend(self) -> Self {
        self
    }
}

/// Manual impl: derive would require `S: Clone` and `A: Clone` of the contents, which are shared.
impl<S: CasStore, A: Portable> Clone for Leased<S, A> {
    fn clone(&self) -> Self {
        Self {
            owner: Arc::clone(&self.owner),
            table: self.table.clone(),
        }
    }
}

impl<S: CasStore, A: Portable> fmt::Debug for Leased<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fleet = self.fleet();
        f.debug_struct("Leased")
            .field("name_prefix", &fleet.link.name_prefix)
            .field("algorithm", &fleet.node.algorithm())
            .field("settings", &fleet.settings)
            .field("store", &fleet.link.shared().store)
            .finish_non_exhaustive()
    }
}
