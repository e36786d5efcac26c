//! A plan per key, which a source such as a database knows.
//!
//! A slot of the table holds the state of a key, the plan that it is under, and how long that is
//! fresh. So a request whose plan is known is decided in one step, the cache of plans is bounded as
//! the table is, and no use is lost when a plan changes or is forgotten. Over a store, the same table holds the
//! plans alone, and the store counts.

mod backend;
mod decision;
mod lookups;
mod planned;
#[cfg(feature = "_remote")]
mod remote;
mod source;

use std::{fmt, hash::Hash, marker::PhantomData, sync::Arc, time::Duration};

#[cfg(feature = "_remote")]
pub use self::remote::PerKeyFuture;
pub use self::{
    decision::PerKeyDecision,
    source::{PlanSource, SourceKey},
};
use self::{
    lookups::{Lookups, Terms},
    planned::{Known, Planned},
};
use super::{Local, Stats};
use crate::acquire::{OneKey, Outcome};
use crate::algorithm::{Algorithm, IntoAlgorithm};
use crate::backend::Op;
use crate::clock::{Clock, Tick};
use crate::decision::{Decision, Verdict};
use crate::error::{ConfigError, expect_valid};
use crate::quota::{Plan, Quota};
use crate::store::apply::apply_op;
use crate::sync::{Mutex, lock};

/// A limit whose quota differs from key to key, in this process or [over](Self::over) a store.
///
/// A [`PlanSource`] says which [`Plan`] a key has, for example from a database: a quota, no limit, nothing at
/// all, or the default. The algorithm is the same for all keys. Its own quota is the default, and that of keys
/// for which the source fails.
///
/// - The plan of a key is looked up at its first request, which waits for it, and is then fresh for
///   [`life`](Self::life). After that, requests go on under the old plan while the new one is
///   looked up, for a key that was used within the [`stale`](Self::stale) time.
/// - One lookup per key is in flight, and at most [`lookups`](Self::lookups) at a time.
/// - A lookup that fails, panics or takes longer than the [`deadline`](Self::deadline) leaves the
///   plan as it was, or gives the default to a key that has none. It is tried again after a second.
/// - A change of the plan reaches a key in use. What it has used stays used, as after
///   [`Local::set_quota`]. What it does while it has no limit is not counted.
/// - At most [`capacity`](Self::capacity) keys are kept. In this process, a key that takes the slot of another
///   one in a full table takes over its use, but not its plan.
///
/// Response headers state the quota of the key, 0 if it is blocked, and nothing if it has no limit. Keys are
/// cloned for the source, which gets those of `HeaderKey` and the like as text ([`SourceKey`]). Clones share the
/// table. Lookups run on the tokio runtime of the request.
///
/// Over a store each process looks plans up for itself, so for up to the life of a plan some machines decide by
/// the old one. A key is counted once for all: what it uses counts under each quota that it had.
///
/// ```
/// use tower_throttle::{Quota, RateLimitLayer, StoreError, TokenBucket, store::{PerKey, Plan}};
///
/// /// In a real program a query, `select .. from plans where customer = $1`.
/// async fn plan_of(customer: String) -> Result<Plan, StoreError> {
///     Ok(match &*customer {
///         "acme" => Plan::Quota(Quota::per_minute(6_000)),
///         "late-payer" => Plan::Blocked,
///         _ => Plan::Default,
///     })
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), StoreError> {
/// let limits = PerKey::new(TokenBucket::new(Quota::per_minute(60)), plan_of);
/// let layer = RateLimitLayer::new(|customer: &String| customer.clone(), limits.clone());
/// let handle = layer.handle();
/// assert_eq!(handle.peek("acme", 1).await?.limit, 6_000);
/// assert_eq!(handle.peek("unknown", 1).await?.limit, 60);
/// assert!(handle.peek("late-payer", 1).await?.is_denied());
/// # Ok(())
/// # }
/// ```
pub struct PerKey<A: Algorithm, K, S, P = InTable> {
    shared: Arc<Shared<A, S>>,
    /// Where the use of the keys is counted.
    place: P,
    keys: PhantomData<fn(&K)>,
}

/// The use of the keys of a [`PerKey`] is counted in its table, in this process.
#[derive(Clone, Copy, Debug)]
pub struct InTable;

struct Shared<A: Algorithm, S> {
    table: Local<Planned<A>>,
    default: Arc<A>,
    source: S,
    times: Times,
    lookups: Lookups<A>,
    /// The algorithm with another quota, as the place takes it.
    with_quota: fn(&A, Quota) -> Result<A, ConfigError>,
    /// Algorithms with the quotas that were found last, so that keys of one plan share one.
    recent: Mutex<Vec<Arc<A>>>,
}

#[derive(Clone, Copy, Debug)]
struct Times {
    life: Duration,
    stale: Duration,
    deadline: Duration,
}

/// How many algorithms are shared.
const RECENT: usize = 64;
/// When a lookup that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);
const LOOKUPS: usize = 1_024;

/// The sizes of a [`PerKey`], and what became of its lookups.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PerKeyStats {
    /// The table of keys.
    pub table: Stats,
    /// How many lookups were started.
    pub lookups: u64,
    /// How many of them have failed, or were not started because too many were in flight.
    pub failed: u64,
    /// How many are in flight.
    pub in_flight: usize,
    /// The error of the last one that failed.
    pub last_error: Option<String>,
}

/// A decision under the plan of the key.
enum Tried {
    /// The plan is not known.
    Unknown,
    Decided {
        decision: Decision,
        /// Whether a request was denied.
        denied: Option<bool>,
        /// The plan is stale, and this request has to refresh it.
        refreshes: bool,
    },
}

impl Outcome for Tried {
    fn denied(&self) -> Option<bool> {
        match self {
            Self::Unknown => None,
            Self::Decided { denied, .. } => *denied,
        }
    }
}

/// Whether a request was denied, if `op` is one.
fn denied(op: Op, decision: &Decision) -> Option<bool> {
    matches!(op, Op::Take(_) | Op::Reserve { .. }).then(|| decision.is_denied())
}

/// Applies `op` to a key whose plan is known.
fn decide<A: Algorithm>(known: &mut Known<A>, now: Tick, op: Op) -> Decision {
    let decided = known.plan.decide(op);
    decided.unwrap_or_else(|| apply_op(&*known.algorithm, &mut known.state, now, op))
}

impl<A: Algorithm, K, S: PlanSource<K>> PerKey<A, K, S> {
    /// A plan per key from `source`, under `algorithm`, whose own quota is the default.
    ///
    /// # Panics
    /// As [`try_new`](Self::try_new) returns an error.
    #[track_caller]
    pub fn new(algorithm: impl IntoAlgorithm<Algorithm = A>, source: S) -> Self {
        expect_valid(Self::try_new(algorithm, source))
    }

    /// The same, for an algorithm from a configuration.
    ///
    /// # Errors
    /// If a setting of the algorithm is invalid, if it does not have a single quota, as a tuple, or if it
    /// has a queue: the turns of queued requests belong to one quota.
    ///
    /// ```
    /// use tower_throttle::{LeakyBucket, Quota, StoreError, store::{PerKey, Plan}};
    ///
    /// let queue = LeakyBucket::new(Quota::per_second(1)).queue(10);
    /// let source = |_: String| async { Ok::<_, StoreError>(Plan::Default) };
    /// let error = PerKey::<_, String, _>::try_new(queue, source).unwrap_err();
    /// assert!(error.to_string().contains("a queue"));
    /// ```
    pub fn try_new(
        algorithm: impl IntoAlgorithm<Algorithm = A>,
        source: S,
    ) -> Result<Self, ConfigError> {
        let algorithm = algorithm.into_algorithm();
        Self::in_place(InTable, &algorithm, source, A::with_quota)
    }
}

impl<A: Algorithm, K, S: PlanSource<K>, P> PerKey<A, K, S, P> {
    fn in_place(
        place: P,
        algorithm: &A,
        source: S,
        with_quota: fn(&A, Quota) -> Result<A, ConfigError>,
    ) -> Result<Self, ConfigError> {
        algorithm.validate()?;
        let algorithm = with_quota(algorithm, algorithm.quota())?;
        if has_queue(&algorithm) {
            return Err(ConfigError::Unsupported {
                what: "a quota per key for an algorithm with a queue",
                instead: "leave the queue out, or make a layer for each quota",
            });
        }
        let times = Times {
            life: Duration::from_secs(60),
            stale: Duration::from_secs(600),
            deadline: Duration::from_secs(2),
        };
        let shared = Shared::new(Arc::new(algorithm), source, times, LOOKUPS, with_quota);
        Ok(Self {
            shared: Arc::new(shared),
            place,
            keys: PhantomData,
        })
    }
}

impl<A: Algorithm, K, S, P> PerKey<A, K, S, P> {
    /// How many keys are kept, with their use and their plans: 100,000 unless set.
    ///
    /// # Panics
    /// If `keys` is not a capacity of [`Local`], or if this was cloned.
    #[must_use]
    #[track_caller]
    pub fn capacity(self, keys: usize) -> Self {
        self.with(|mut shared| {
            shared.table = shared.table.capacity(keys);
            shared
        })
    }

    /// How long a plan is fresh: a minute unless set. A change of a plan reaches a key within this time
    /// and that of a lookup, at its next but one request.
    ///
    /// # Panics
    /// If this was cloned.
    #[must_use]
    #[track_caller]
    pub fn life(self, life: Duration) -> Self {
        self.with_times(|times| times.life = life)
    }

    /// How long after its life a plan is used while it is refreshed, if the key is not used in
    /// between: ten minutes unless set. It is longer if the use of the key counts longer.
    ///
    /// # Panics
    /// If this was cloned.
    #[must_use]
    #[track_caller]
    pub fn stale(self, stale: Duration) -> Self {
        self.with_times(|times| times.stale = stale)
    }

    /// How long a lookup may take: two seconds unless set.
    ///
    /// # Panics
    /// If this was cloned.
    #[must_use]
    #[track_caller]
    pub fn deadline(self, deadline: Duration) -> Self {
        self.with_times(|times| times.deadline = deadline)
    }

    /// How many lookups may be in flight: 1,024 unless set. One more counts as failed.
    ///
    /// # Panics
    /// If this was cloned.
    #[must_use]
    #[track_caller]
    pub fn lookups(self, most: usize) -> Self {
        self.with(|mut shared| {
            shared.lookups.most = most;
            shared
        })
    }

    #[track_caller]
    fn with_times(self, set: impl FnOnce(&mut Times)) -> Self {
        self.with(|shared| {
            let capacity = shared.table.stats().capacity;
            let mut times = shared.times;
            set(&mut times);
            let (most, with_quota) = (shared.lookups.most, shared.with_quota);
            let mut shared = Shared::new(shared.default, shared.source, times, most, with_quota);
            shared.table = shared.table.capacity(capacity);
            shared
        })
    }

    #[track_caller]
    fn with(self, set: impl FnOnce(Shared<A, S>) -> Shared<A, S>) -> Self {
        let Ok(shared) = Arc::try_unwrap(self.shared) else {
            panic!("a setting of a PerKey that was cloned: set it before");
        };
        Self {
            shared: Arc::new(set(shared)),
            ..self
        }
    }

    /// Sizes and counters.
    pub fn stats(&self) -> PerKeyStats {
        let (lookups, failed, in_flight, last_error) = self.shared.lookups.counts();
        PerKeyStats {
            table: self.shared.table.stats(),
            lookups,
            failed,
            in_flight,
            last_error,
        }
    }
}

impl<A: Algorithm, K, S> PerKey<A, K, S> {
    /// Looks the plan of `key` up again at its next request, which goes on under the old one: for a
    /// message that a plan has changed.
    pub fn refresh<Q>(&self, key: &Q)
    where
        Q: Hash + ?Sized,
    {
        self.shared.expire(self.shared.table.hash(key));
    }
}

/// Whether it makes requests wait that are not admitted at once.
fn has_queue<A: Algorithm>(algorithm: &A) -> bool {
    let waits_after = |used| {
        let mut state = algorithm.fresh(Tick::ZERO);
        let _ = algorithm.charge(&mut state, Tick::ZERO, used);
        let decision = algorithm.decide(&mut state, Tick::ZERO, 1);
        matches!(decision.verdict, Verdict::Wait(_))
    };
    waits_after(1) || waits_after(algorithm.quota().capacity())
}

impl<A: Algorithm, S> Shared<A, S> {
    fn new(
        default: Arc<A>,
        source: S,
        times: Times,
        most: usize,
        with_quota: fn(&A, Quota) -> Result<A, ConfigError>,
    ) -> Self {
        let planned = Planned {
            default: Arc::clone(&default),
            stale: times.stale,
        };
        Self {
            table: Local::new(planned),
            default,
            source,
            times,
            lookups: Lookups::new(most),
            with_quota,
            recent: Mutex::default(),
        }
    }

    /// The plan of the key with this hash is stale, also one that a lookup in flight will find.
    fn expire(&self, hash: u64) {
        self.lookups.outdate(hash);
        let now = self.table.shared.clock.now();
        let expire = |_: &Planned<A>, state: &mut planned::PlannedState<A>| {
            if let Some(known) = state.of(hash) {
                known.fresh_until = known.fresh_until.min(now);
            }
        };
        // A key without a slot is looked up anyway.
        let _ = self.table.at(hash).run(now, false, expire);
    }

    /// What the source has answered.
    fn terms(&self, plan: Plan) -> Result<Terms<A>, String> {
        let quota = match plan {
            Plan::Quota(quota) => quota,
            Plan::Default => self.default.quota(),
            Plan::Unlimited | Plan::Blocked => return Ok((plan, None)),
        };
        let algorithm = self.algorithm(quota);
        let algorithm = algorithm.map_err(|error| format!("the quota {quota}: {error}"))?;
        Ok((Plan::Quota(quota), Some(algorithm)))
    }

    /// The algorithm with this quota.
    fn algorithm(&self, quota: Quota) -> Result<Arc<A>, ConfigError> {
        if quota == self.default.quota() {
            return Ok(Arc::clone(&self.default));
        }
        let mut recent = lock(&self.recent);
        if let Some(same) = recent.iter().find(|recent| recent.quota() == quota) {
            return Ok(Arc::clone(same));
        }
        let algorithm = (self.with_quota)(&self.default, quota)?;
        algorithm.validate()?;
        let algorithm = Arc::new(algorithm);
        recent.truncate(RECENT - 1);
        recent.insert(0, Arc::clone(&algorithm));
        Ok(algorithm)
    }

    /// Until when what was found is fresh.
    fn fresh_until(&self, is_found: bool, now: Tick) -> Tick {
        let life = self.times.life;
        now.plus(if is_found { life } else { life.min(RETRY) })
    }

    /// Applies `op` if the plan of the key is known.
    fn try_apply(&self, hash: u64, op: Op, now: Tick) -> Result<Tried, Tick> {
        let claimed_until = now.plus(self.times.deadline);
        self.table.at(hash).run(now, true, |_, state| {
            let Some(known) = state.of(hash) else {
                return Tried::Unknown;
            };
            let decision = decide(known, now, op);
            let is_read = matches!(op, Op::Peek(_));
            Tried::Decided {
                denied: denied(op, &decision),
                decision,
                refreshes: !is_read && known.claim_refresh(now, claimed_until),
            }
        })
    }

    /// Puts the key under the plan that was found, unless it has one by now, and applies `op`.
    fn apply_found(&self, hash: u64, op: Op, found: Option<&Terms<A>>) -> Decision {
        let now = self.table.shared.clock.now();
        let until = self.fresh_until(found.is_some(), now);
        let decided = self.table.at(hash).run(now, true, |_, state| {
            let known = match state.of(hash) {
                Some(known) => known,
                None => state.assign(hash, (found, until), &self.default, now),
            };
            let decision = decide(known, now, op);
            Tried::Decided {
                denied: denied(op, &decision),
                decision,
                refreshes: false,
            }
        });
        self.decided(&decided, now)
    }

    fn decided(&self, tried: &Result<Tried, Tick>, now: Tick) -> Decision {
        match *tried {
            Ok(Tried::Decided { decision, .. }) => decision,
            Ok(Tried::Unknown) => self.table.at(0).deny(now, now),
            Err(free) => self.table.at(0).deny(free, now),
        }
    }
}

/// Manual impl: derive would require `S: Clone`. Clones share the table.
impl<A: Algorithm, K, S, P: Clone> Clone for PerKey<A, K, S, P> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            place: self.place.clone(),
            keys: PhantomData,
        }
    }
}

/// Manual impl: keys must not be logged, and sources are closures.
impl<A: Algorithm, K, S, P> fmt::Debug for PerKey<A, K, S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerKey")
            .field("default", &self.shared.default)
            .field("times", &self.shared.times)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
