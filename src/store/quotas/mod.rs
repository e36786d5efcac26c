//! A quota per key: a lookup before the decision says which plan a key has.

#[cfg(feature = "tokio")]
mod cached;
mod limit;
mod lookup;

use std::{collections::HashMap, fmt, future::Future, sync::Arc, time::Duration};

#[cfg(feature = "tokio")]
pub use self::cached::Cached;
pub(crate) use self::limit::UnderQuota;
pub(super) use self::limit::under;
pub use self::{limit::QuotaPerKey, lookup::Lookup};
use super::any::{AnyDecision, AnyLimit, any, fixed};
use crate::backend::{Backend, IntoBackend, Op, Stats};
use crate::clock::Tick;
use crate::decision::{Decision, LineCosts};
use crate::error::{ConfigError, expect_valid};
use crate::quota::{Plan, Quota};
use crate::sync::Swap;

/// A limit whose quota differs from key to key, in this process or in a store.
///
/// A [`Lookup`] is asked before each decision which [`Plan`] the key has: a closure, or a [`Cached`] source such as
/// a database. All keys share the states of one limit, whose own quota is the default. A state says what was used and
/// not how much may be, so what a key has used stays used when its plan changes, to and fro as often as it likes.
///
/// ```
/// use std::{collections::HashMap, future::Future};
/// use tower_throttle::{Quota, RateLimitLayer, TokenBucket, store::{Plan, Quotas}};
///
/// let plans = HashMap::from([
///     ("acme", Plan::Quota(Quota::per_minute(6_000))),
///     ("late-payer", Plan::Blocked),
/// ]);
/// let limits = Quotas::new(TokenBucket::new(Quota::per_minute(60)), move |customer: &String| {
///     plans.get(&**customer).copied().unwrap_or_default()
/// });
/// let layer = RateLimitLayer::new(|customer: &String| customer.clone(), limits);
/// # let handle = layer.handle();
/// # let limit = |customer: &str| {
/// #     let mut peeked = handle.peek(&customer.to_owned(), 1);
/// #     let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
/// #     let std::task::Poll::Ready(decided) = std::pin::Pin::new(&mut peeked).poll(&mut cx) else { panic!() };
/// #     decided.unwrap().limit
/// # };
/// # assert_eq!(["acme", "late-payer", "unknown"].map(limit), [6_000, 0, 60]);
/// ```
///
/// - Response headers state the quota of the key, 0 if it is blocked, and nothing if it has no limit. Neither of
///   these costs a call of a store.
/// - A quota that the algorithm cannot have gives the default; [`last_error`](Self::last_error) says so.
/// - In a store a key is counted once for all machines, under each quota that it had; quotas of different periods, and
///   those of `Gcra`, count for themselves. A fleet divides one quota into budgets, and is refused by the compiler.
/// - What a [`tier`](Self::tier) counts is apart from all others.
#[derive(Clone)]
pub struct Quotas<K> {
    lookup: Arc<dyn Lookup<K>>,
    under: Arc<UnderQuota<K>>,
    default: AnyLimit<K>,
    /// A key that is blocked, and one without a limit.
    fixed: [AnyLimit<K>; 2],
    tiers: Vec<(&'static str, AnyLimit<K>)>,
    /// The limits under the quotas that were found last, so that keys of one plan share one.
    known: Arc<Swap<HashMap<Quota, AnyLimit<K>>>>,
    last_error: Arc<Swap<Option<ConfigError>>>,
    decides_at_once: bool,
    queues: bool,
}

/// How many limits are shared.
const KNOWN: usize = 1_024;

impl<K: 'static> Quotas<K> {
    /// A quota per key as `lookup` says, under `limit`, whose own quota is the default.
    ///
    /// # Panics
    /// If a setting of the algorithm is invalid, if it does not have a single quota, as a tuple, or if a table was
    /// used or cloned before. In a store, for a [`Lockout`](crate::Lockout).
    #[track_caller]
    pub fn new<L: QuotaPerKey<K>>(limit: L, lookup: impl Lookup<K>) -> Self {
        let limit = limit.into_backend();
        let decides_at_once = L::decides_at_once(&limit) && lookup.knows_all();
        let queues = L::queues(&limit);
        let under = expect_valid(L::into_quotas(limit));
        let default = expect_valid(under(None));
        let fixed = |plan| {
            let fixed = fixed(plan, Some(Arc::clone(&default)));
            fixed.unwrap_or_else(|| Arc::clone(&default))
        };
        Self {
            decides_at_once,
            queues,
            lookup: Arc::new(lookup),
            under: Arc::new(under),
            fixed: [Plan::Blocked, Plan::Unlimited].map(fixed),
            default,
            tiers: Vec::new(),
            known: Arc::default(),
            last_error: Arc::default(),
        }
    }

    /// Decides by `limit` on keys of the tier `name`, in place of an earlier one: by another algorithm, several, or
    /// those in another store. Headers and denials name the limit by the tier.
    ///
    /// A tier counts for itself: a customer who changes to it begins there afresh. A tier that is not listed has the
    /// default.
    ///
    /// ```
    /// use tower_throttle::store::{Plan, Quotas};
    /// use tower_throttle::{FixedWindow, Quota, RateLimitLayer, TokenBucket};
    ///
    /// let pro = (TokenBucket::new(Quota::per_second(50)), FixedWindow::new(Quota::per_day(100_000)));
    /// let limits = Quotas::new(FixedWindow::new(Quota::per_day(100)), |customer: &u64| match customer {
    ///     0..100 => Plan::Tier("pro"),
    ///     _ => Plan::Default,
    /// })
    /// .tier("pro", pro);
    /// let layer = RateLimitLayer::new(|customer: &u64| *customer, limits);
    /// # let _ = layer;
    /// ```
    #[must_use]
    #[track_caller]
    pub fn tier<L>(mut self, name: &'static str, limit: L) -> Self
    where
        L: IntoBackend<Backend: Backend<K>>,
    {
        let limit = limit.into_backend();
        self.decides_at_once &= L::decides_at_once(&limit);
        self.queues |= L::queues(&limit);
        self.tiers.retain(|(listed, _)| *listed != name);
        self.tiers.push((name, any(limit)));
        self
    }

    /// Why the last quota was refused that a lookup has answered with and that the algorithm cannot have.
    pub fn last_error(&self) -> Option<ConfigError> {
        self.last_error.read(Clone::clone)
    }

    /// What decides under `plan`.
    fn limit_of(&self, plan: Plan) -> AnyLimit<K> {
        let limit = match plan {
            Plan::Quota(quota) => return self.under_quota(quota),
            Plan::Default => None,
            Plan::Blocked => Some(&self.fixed[0]),
            Plan::Unlimited => Some(&self.fixed[1]),
            Plan::Tier(name) => {
                let tier = self.tiers.iter().find(|(listed, _)| *listed == name);
                tier.map(|(_, limit)| limit)
            }
        };
        Arc::clone(limit.unwrap_or(&self.default))
    }

    fn under_quota(&self, quota: Quota) -> AnyLimit<K> {
        if let Some(limit) = self.known.read(|known| known.get(&quota).cloned()) {
            return limit;
        }
        let made = (self.under)(Some(quota)).inspect(|limit| {
            self.known.update(|known| {
                if known.len() >= KNOWN {
                    known.clear();
                }
                known.insert(quota, Arc::clone(limit));
            });
        });
        made.unwrap_or_else(|error| {
            self.last_error.set(Some(error));
            Arc::clone(&self.default)
        })
    }

    /// What decides on a key whose plan is known without waiting.
    fn at_once(&self, key: &K) -> Option<AnyLimit<K>> {
        self.lookup.plan(key).map(|plan| self.limit_of(plan))
    }

    fn limits(&self) -> impl Iterator<Item = &AnyLimit<K>> {
        let tiers = self.tiers.iter().map(|(_, limit)| limit);
        [&self.default].into_iter().chain(tiers)
    }
}

impl<K: Clone + Send + 'static> Backend<K> for Quotas<K> {
    type Future = AnyDecision;

    fn apply(&self, key: &K, op: Op) -> AnyDecision {
        if let Some(limit) = self.at_once(key) {
            return limit.apply(key, op);
        }
        let (own, key, plan) = (self.clone(), key.clone(), self.lookup.wait(key));
        AnyDecision::pending(async move {
            let limit = own.limit_of(plan.await);
            let deciding = limit.apply(&key, op);
            deciding.await
        })
    }

    /// An operation that has to wait for the plan is made in a task.
    fn detach(&self, key: &K, op: Op) {
        match self.at_once(key) {
            Some(limit) => limit.detach(key, op),
            None => spawn(self.apply(key, op)),
        }
    }

    fn take_turn(&self, key: &K, cost: u64, at: Tick, late: Duration) -> Option<Decision> {
        self.at_once(key)?.take_turn(key, cost, at, late)
    }

    fn expected_wait(&self, key: &K, costs: LineCosts, at: Tick) -> Option<[Duration; 2]> {
        self.at_once(key)?.expected_wait(key, costs, at)
    }

    fn current_decision(&self, key: &K, cost: u64) -> Option<Decision> {
        self.at_once(key)?.current_decision(key, cost)
    }

    fn stats(&self) -> Stats {
        let all = self.limits().map(Backend::stats);
        all.fold(Stats::default(), |sum, of_one| sum + of_one)
    }

    /// Those of the default.
    fn quotas(&self) -> Vec<Quota> {
        self.default.quotas()
    }

    fn plan_of(&self, key: &K) -> Option<(Plan, Vec<Quota>)> {
        let plan = self.lookup.plan(key).unwrap_or_default();
        let limit = self.limit_of(plan);
        let is_default = Arc::ptr_eq(&limit, &self.default);
        let plan = if is_default { Plan::Default } else { plan };
        Some((plan, limit.quotas()))
    }

    /// The most that a plan has.
    fn limits(&self) -> usize {
        let limits = self.limits().map(Backend::limits);
        limits.max().unwrap_or_default()
    }

    /// The most of a plan: a cost is given back under the plan that the key has then.
    fn backends(&self) -> u32 {
        let backends = self.limits().map(Backend::backends);
        backends.max().unwrap_or(1)
    }
}

impl<K: 'static> IntoBackend for Quotas<K> {
    type Backend = Self;

    fn into_backend(self) -> Self {
        self
    }

    fn queues(backend: &Self) -> bool {
        backend.queues
    }

    fn decides_at_once(backend: &Self) -> bool {
        backend.decides_at_once
    }
}

/// Manual impl: limits of any type and closures are not `Debug`.
impl<K> fmt::Debug for Quotas<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tiers: Vec<_> = self.tiers.iter().map(|(name, _)| name).collect();
        f.debug_struct("Quotas")
            .field("tiers", &tiers)
            .finish_non_exhaustive()
    }
}

/// Runs `future` in a task of the caller's runtime, if there is one.
fn spawn<F: Future<Output: Send> + Send + 'static>(future: F) {
    #[cfg(feature = "tokio")]
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(future);
    }
    #[cfg(not(feature = "tokio"))]
    drop(future);
}
