//! A plan per key over a store: the plans are cached in this process, and the store counts.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::runtime::Handle;

use super::{
    PerKey, PlanSource, Shared, SourceKey,
    lookups::Terms,
    planned::{Planned, PlannedState},
};
use crate::acquire::{OneKey, Outcome};
use crate::algorithm::Algorithm;
use crate::backend::{Backend, Losses, Op};
use crate::clock::{Clock, Tick};
use crate::decision::Decision;
use crate::error::{ConfigError, StoreError, expect_valid};
use crate::quota::{Plan, Quota};
use crate::store::remote::{QuotaPerKey, RemoteKey};

/// The decision of a [`PerKey`] over a store: the call, after the plan was looked up if it is not known. A key
/// without a limit and one that is blocked need no call.
///
/// # Cancel safety
/// If it is dropped before the plan is known, no call is made. Later, the call is that of the limiter.
#[must_use = "futures do nothing unless polled"]
pub struct PerKeyFuture<A: Algorithm, S, P: QuotaPerKey<Algorithm = A>>(Progress<A, S, P>);

enum Progress<A: Algorithm, S, P: QuotaPerKey<Algorithm = A>> {
    LookingUp {
        found: Pin<Box<dyn Future<Output = Option<Terms<A>>> + Send>>,
        shared: Arc<Shared<A, S>>,
        place: P,
        /// The name of the key, and its hash.
        key: (String, u64),
        op: Op,
    },
    Deciding(P::Decision),
    Decided(Decision),
}

/// The plan of a key in the table.
struct Cached<A> {
    /// `None` if it is not known.
    known: Option<(Plan, Arc<A>)>,
    /// It is stale, and this request has to refresh it.
    refreshes: bool,
}

impl<A> Outcome for Cached<A> {}

impl<A, K, S, P> PerKey<A, K, S, P>
where
    A: Algorithm,
    S: PlanSource<K>,
    P: QuotaPerKey<Algorithm = A>,
{
    /// A plan per key from `source` in the store of `limiter`: a limiter of Redis, or a
    /// [`Cas`](crate::store::cas::Cas). The quota of `limiter` is the default.
    ///
    /// A decision is one call, as without a quota per key. What a key uses is counted once for all machines, and
    /// counts under each quota of one period that it had: setting an earlier quota again frees nothing.
    ///
    /// A fleet ([`Synced`](crate::store::fleet::Synced), [`Leased`](crate::store::fleet::Leased)) divides one
    /// quota into budgets, and is refused by the compiler.
    ///
    /// # Panics
    /// As [`try_over`](Self::try_over) returns an error.
    ///
    /// ```
    /// use tower_throttle::store::{Backend, PerKey, Plan, cas::{Cas, MemoryStore}};
    /// use tower_throttle::{Quota, StoreError, TokenBucket};
    ///
    /// /// In a real program a query, `select .. from plans where customer = $1`.
    /// async fn plan_of(customer: String) -> Result<Plan, StoreError> {
    ///     Ok(match &*customer {
    ///         "acme" => Plan::Quota(Quota::per_hour(6_000)),
    ///         "late-payer" => Plan::Blocked,
    ///         _ => Plan::Default,
    ///     })
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), StoreError> {
    /// let shared = Cas::new(MemoryStore::new(), "api", TokenBucket::new(Quota::per_hour(60)));
    /// let limits = PerKey::over(shared, plan_of);
    /// assert_eq!(limits.decide("acme", 1).await?.remaining(), 5_999);
    /// assert_eq!(limits.decide("unknown", 1).await?.remaining(), 59);
    /// assert!(limits.decide("late-payer", 1).await?.is_denied());
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn over(limiter: P, source: S) -> Self {
        expect_valid(Self::try_over(limiter, source))
    }

    /// The same, for an algorithm from a configuration.
    ///
    /// # Errors
    /// As [`try_new`](PerKey::try_new); and for a [`Lockout`](crate::Lockout).
    ///
    /// ```
    /// use tower_throttle::store::{PerKey, Plan, cas::{Cas, MemoryStore}};
    /// use tower_throttle::{Lockout, Quota, StoreError};
    ///
    /// let logins = Cas::new(MemoryStore::new(), "logins", Lockout::new(Quota::per_hour(5)));
    /// let source = |_: String| async { Ok::<_, StoreError>(Plan::Default) };
    /// let error = PerKey::try_over(logins, source).unwrap_err();
    /// assert!(error.to_string().contains("a lockout in a store"));
    /// ```
    pub fn try_over(limiter: P, source: S) -> Result<Self, ConfigError> {
        let algorithm = limiter.algorithm();
        if is_lockout(&algorithm) {
            return Err(ConfigError::Unsupported {
                what: "a quota per key for a lockout in a store",
                instead: "count in this process, or give each quota a limiter, with `Tiers`",
            });
        }
        Self::in_place(limiter, &algorithm, source, P::with_key_quota)
    }

    /// Looks the plan of `key` up again at its next request to this process, which goes on under the old one:
    /// for a message that a plan has changed.
    pub fn refresh<Q: RemoteKey + ?Sized>(&self, key: &Q) {
        self.shared.expire(self.named(key).1);
    }

    /// The name of a key, and its hash.
    fn named<Q: RemoteKey + ?Sized>(&self, key: &Q) -> (String, u64) {
        let name = self.place.key_name(key);
        let hash = self.shared.table.hash(&*name);
        (name, hash)
    }
}

/// Whether it can ban a key. Each time that it took over a block under another quota, a key might get one more
/// attempt.
fn is_lockout<A: Algorithm>(algorithm: &A) -> bool {
    let mut state = algorithm.fresh(Tick::ZERO);
    A::ban(algorithm, &mut state, Tick::ZERO, Duration::from_secs(1));
    algorithm.peek(&state, Tick::ZERO, 1).is_denied()
}

impl<A: Algorithm, S> Shared<A, S> {
    fn cached(&self, hash: u64, uses: bool) -> Cached<A> {
        let now = self.table.shared.clock.now();
        let claimed_until = now.plus(self.times.deadline);
        let read = |_: &Planned<A>, state: &mut PlannedState<A>| {
            let known = state.of(hash);
            let (known, refreshes) = known.map_or((None, false), |known| {
                let refreshes = uses && known.claim_refresh(now, claimed_until);
                let terms = (known.plan, Arc::clone(&known.algorithm));
                (Some(terms), refreshes)
            });
            Cached { known, refreshes }
        };
        self.table.at(hash).run(now, true, read).unwrap_or(Cached {
            known: None,
            refreshes: false,
        })
    }

    /// The plan of a key that was looked up.
    fn assigned(&self, hash: u64, found: Option<&Terms<A>>) -> (Plan, Arc<A>) {
        let now = self.table.shared.clock.now();
        let until = self.fresh_until(found.is_some(), now);
        let assign = |_: &Planned<A>, state: &mut PlannedState<A>| {
            let known = match state.of(hash) {
                Some(known) => known,
                None => state.assign(hash, (found, until), &self.default, now),
            };
            Cached {
                known: Some((known.plan, Arc::clone(&known.algorithm))),
                refreshes: false,
            }
        };
        let assigned = self.table.at(hash).run(now, true, assign).ok();
        assigned
            .and_then(|cached| cached.known)
            .unwrap_or_else(|| match found {
                Some((plan, algorithm)) => {
                    let algorithm = algorithm.as_ref().unwrap_or(&self.default);
                    (*plan, Arc::clone(algorithm))
                }
                None => (Plan::Quota(self.default.quota()), Arc::clone(&self.default)),
            })
    }
}

impl<A, K, S, P, Q> Backend<Q> for PerKey<A, K, S, P>
where
    A: Algorithm,
    K: Send + Sync + 'static,
    S: PlanSource<K>,
    P: QuotaPerKey<Algorithm = A>,
    Q: RemoteKey + SourceKey<K> + ?Sized,
{
    type Future = PerKeyFuture<A, S, P>;

    fn apply(&self, key: &Q, op: Op) -> Self::Future {
        let (name, hash) = self.named(key);
        let uses = !matches!(op, Op::Peek(_) | Op::PeekOf(..));
        let cached = self.shared.cached(hash, uses);
        let lookup = if cached.known.is_none() || cached.refreshes {
            self.look_up(hash, key)
        } else {
            None
        };
        let known = match (cached.known, lookup) {
            (Some(known), _) => known,
            (None, None) => self.shared.assigned(hash, None),
            (None, Some(lookup)) => {
                let shared = Arc::clone(&self.shared);
                return PerKeyFuture(Progress::LookingUp {
                    found: Box::pin(async move { shared.found(hash, &lookup).await }),
                    shared: Arc::clone(&self.shared),
                    place: self.place.clone(),
                    key: (name, hash),
                    op,
                });
            }
        };
        PerKeyFuture(Progress::of(&self.place, known, name, op))
    }

    /// Runs `op` in a task: a call that is dropped before it is decided is not counted.
    fn detach(&self, key: &Q, op: Op) {
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(self.apply(key, op));
        }
    }

    fn losses(&self) -> Losses {
        Losses::default()
    }

    /// The default.
    fn quotas(&self) -> Vec<Quota> {
        vec![self.shared.default.quota()]
    }

    fn plan_of(&self, key: &Q) -> Option<Plan> {
        let now = self.shared.table.shared.clock.now();
        Some(self.shared.plan_of(self.named(key).1, now))
    }
}

impl<A: Algorithm, S, P: QuotaPerKey<Algorithm = A>> Progress<A, S, P> {
    /// The decision on a key whose plan is known.
    fn of(place: &P, (plan, algorithm): (Plan, Arc<A>), name: String, op: Op) -> Self {
        match plan.decide(op) {
            Some(decision) => Self::Decided(decision),
            None => Self::Deciding(place.apply_under(&algorithm, name, op)),
        }
    }
}

impl<A: Algorithm, S, P: QuotaPerKey<Algorithm = A>> Future for PerKeyFuture<A, S, P> {
    type Output = Result<Decision, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Progress::LookingUp {
            found,
            shared,
            place,
            key: (name, hash),
            op,
        } = &mut self.0
        {
            let found = ready!(found.as_mut().poll(cx));
            let known = shared.assigned(*hash, found.as_ref());
            let name = std::mem::take(name);
            self.0 = Progress::of(place, known, name, *op);
        }
        match &mut self.0 {
            Progress::Deciding(deciding) => Pin::new(deciding).poll(cx),
            Progress::Decided(decision) => Poll::Ready(Ok(*decision)),
            Progress::LookingUp { .. } => Poll::Pending,
        }
    }
}

/// Manual impl: the key is not logged.
impl<A: Algorithm, S, P: QuotaPerKey<Algorithm = A>> fmt::Debug for PerKeyFuture<A, S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_looking_up = matches!(self.0, Progress::LookingUp { .. });
        f.debug_struct("PerKeyFuture")
            .field("is_looking_up", &is_looking_up)
            .finish_non_exhaustive()
    }
}
