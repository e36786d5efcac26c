//! A second backend for when the first one fails.

use std::{
    borrow::Borrow,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::backend::{Backend, IntoBackend, Op, Stats};
use crate::decision::Decision;
use crate::quota::{Plan, Quota};
use crate::receipt::Receipt;
use crate::store::{
    any::AnyDecision,
    events::{SwitchLog, count_switch},
};

/// Decides by the primary backend, and by the secondary one if the primary fails.
///
/// For the limit of a fleet, the secondary one is a limit in this process, best with an N-th of the
/// quota on each of N machines. An outage then neither admits nor denies everything:
///
/// ```
/// use tower_throttle::store::{Backend, Fallback};
///
/// fn with_fallback<K, P, S>(fleet: P, this_machine: S) -> Fallback<P, S>
/// where
///     P: Backend<K>,
///     S: Backend<K>,
/// {
///     Fallback::new(fleet, this_machine)
/// }
/// ```
///
/// Only transient errors ([`StoreError::is_transient`](crate::StoreError::is_transient)) lead to the secondary backend. A permanent
/// error (a wrong password, a key of another program) is returned: the fallback would hide it.
///
/// Each switch is counted as `tower_throttle_switches_total` (feature `metrics`) and logged (feature `tracing`). If there are many, four are logged at once and then one per ten
/// seconds, with the number that was left out. The backend that decides in the end is always
/// logged.
///
/// A refund goes to the backend that took the cost, never to the other one. If that backend is
/// unavailable, the cost stays taken.
///
/// A reset applies to the backend that decides at that time, and not to the other one. After
/// a switch a blocked key is admitted, and a key that was reset may still be blocked.
///
/// A machine that switches may admit the secondary backend's limit in addition to the primary's
/// promise. The primary backend never learns what the secondary one admitted.
pub struct Fallback<P, S>(Arc<FallbackInner<P, S>>);

struct FallbackInner<P, S> {
    primary: P,
    secondary: S,
    is_on_secondary: AtomicBool,
    log: SwitchLog,
}

impl<P, S> Fallback<P, S> {
    /// Decides by `primary`, and by `secondary` if that fails.
    pub fn new(primary: P, secondary: S) -> Self {
        Self(Arc::new(FallbackInner {
            primary,
            secondary,
            is_on_secondary: AtomicBool::new(false),
            log: SwitchLog::default(),
        }))
    }

    /// Whether the secondary backend made the last decision.
    pub fn is_on_secondary(&self) -> bool {
        self.0.is_on_secondary.load(Ordering::Relaxed)
    }
}

impl<P, S> FallbackInner<P, S> {
    /// Records which backend decides. If several callers see the same switch, one counts it.
    fn record_decider(&self, secondary: bool) {
        // Read first: all threads may do so at once.
        let has_switched = self.is_on_secondary.load(Ordering::Relaxed) != secondary
            && self.is_on_secondary.swap(secondary, Ordering::Relaxed) != secondary;
        if has_switched {
            count_switch("fallback", if secondary { "on" } else { "off" });
        }
        let text = if secondary {
            "the fallback decides"
        } else {
            "the primary store decides again"
        };
        self.log.record(&text, secondary, None, has_switched);
    }
}

impl<K, P, S> Backend<K> for Fallback<P, S>
where
    K: ToOwned<Owned: Send + 'static> + ?Sized + 'static,
    P: Backend<K>,
    S: Backend<K>,
{
    type Future = AnyDecision;

    fn apply(&self, key: &K, op: Op) -> AnyDecision {
        let (inner, key) = (Arc::clone(&self.0), key.to_owned());
        let primaries = inner.primary.backends();
        let (in_secondary, op) = split_op(op, primaries);
        let of_one = move |is_secondary| {
            move |decision: Decision| {
                let own = decision.receipt();
                decision.with_receipt(own.of_one(is_secondary, primaries))
            }
        };
        AnyDecision::started(Box::pin(async move {
            if in_secondary != Some(true) {
                let deciding = inner.primary.apply(key.borrow(), op);
                let decided = deciding.await;
                // Only the primary backend has the cost of its own receipt to give back.
                if in_secondary.is_some() {
                    return decided;
                }
                let is_out = matches!(&decided, Err(error) if error.is_transient());
                if is_out || decided.is_ok() {
                    inner.record_decider(is_out);
                }
                if !is_out {
                    return decided.map(of_one(false));
                }
            }
            let deciding = inner.secondary.apply(key.borrow(), op);
            deciding.await.map(of_one(true))
        }))
    }

    /// Runs `op` on the backend that took the cost, or on the one that decides now.
    fn detach(&self, key: &K, op: Op) {
        let (in_secondary, op) = split_op(op, self.0.primary.backends());
        if in_secondary.unwrap_or_else(|| self.is_on_secondary()) {
            self.0.secondary.detach(key, op);
        } else {
            self.0.primary.detach(key, op);
        }
    }

    /// Those of both backends.
    fn stats(&self) -> Stats {
        self.0.primary.stats() + self.0.secondary.stats()
    }

    /// The quotas of the primary backend.
    fn quotas(&self) -> Vec<Quota> {
        self.0.primary.quotas()
    }

    /// That of the primary backend.
    fn plan_of(&self, key: &K) -> Option<(Plan, Vec<Quota>)> {
        self.0.primary.plan_of(key)
    }

    fn limits(&self) -> usize {
        self.0.primary.limits()
    }

    fn backends(&self) -> u32 {
        self.0.primary.backends() + self.0.secondary.backends()
    }
}

impl<P, S> IntoBackend for Fallback<P, S>
where
    P: IntoBackend<Backend = P> + Send + Sync + 'static,
    S: IntoBackend<Backend = S> + Send + Sync + 'static,
{
    type Backend = Self;

    fn into_backend(self) -> Self {
        self
    }

    fn queues(backend: &Self) -> bool {
        P::queues(&backend.0.primary) || S::queues(&backend.0.secondary)
    }
}

/// Manual impl: a clone shares both backends and the counts.
impl<P, S> Clone for Fallback<P, S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<P: fmt::Debug, S: fmt::Debug> fmt::Debug for Fallback<P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fallback")
            .field("primary", &self.0.primary)
            .field("secondary", &self.0.secondary)
            .field("is_on_secondary", &self.is_on_secondary())
            .finish()
    }
}

/// Whether the secondary backend took the cost of a refund, and the operation with its own receipt.
fn split_op(op: Op, primaries: u32) -> (Option<bool>, Op) {
    let (with, cost, receipt): (fn(u64, Receipt) -> Op, _, _) = match op {
        Op::Refund(cost, receipt) => (Op::Refund, cost, receipt),
        Op::Cancel(cost, receipt) => (Op::Cancel, cost, receipt),
        Op::Forgive(cost, receipt) => (Op::Forgive, cost, receipt),
        op => return (None, op),
    };
    let (in_secondary, own) = receipt.split(primaries);
    (in_secondary, with(cost, own))
}
