//! A limiter whose states are in a store with a compare-and-swap.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use tokio::{runtime::Handle, sync::oneshot};

use super::{
    CasStore, Runs,
    calls::Calls,
    decider::{Decider, KeyCall, is_update},
    driver::{Alone, Driver, IN_FLIGHT},
    error::shut_down,
    inner::Inner,
    lanes::{Lane, Lanes, Waiting},
    settings::expect_unused,
    shared::Shared,
};
use crate::algorithm::{Algorithm, IntoAlgorithm};
use crate::backend::{Backend, IntoBackend, Op, Stats};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::decision::Decision;
use crate::error::{ConfigError, StoreError};
use crate::quota::Quota;
use crate::store::{
    any::{AnyDecision, any},
    deadline::within,
    events::RemoteMetrics,
    quotas::{QuotaPerKey, UnderQuota, under},
    remote::{DenyCache, RemoteKey, check_name, key_name},
};
use crate::sync::Ordering;

/// A limit whose states are in a store with a compare-and-swap.
///
/// Clones are the same limiter. Its calls for one key are decided together, in their order: one swap
/// per key is in flight at a time, however many requests arrive.
///
/// # Cancel safety
/// A decision ends by the deadline wherever it is polled. The call is sent when its future is first polled, or before. If
/// that is dropped before the call was sent or decided, the call is not counted, unless a swap with it has failed and
/// calls in the same swap still wait. If it is dropped later, it is counted.
///
/// ```
/// use tower_throttle::{Quota, SlidingLog, store::{Backend, cas::{Cas, MemoryStore}}};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limit = Cas::new(MemoryStore::new(), "login", SlidingLog::new(Quota::per_minute(5)))?;
/// assert!(limit.decide("alice", 5).await?.is_admitted());
/// assert!(limit.decide("alice", 1).await?.is_denied());
/// # Ok(())
/// # }
/// ```
pub struct Cas<S: CasStore, A: Algorithm> {
    pub(super) inner: Arc<Inner<S, A>>,
    /// Limits under other quotas have others, for [`Quotas`](crate::store::Quotas).
    pub(super) decider: Arc<Decider<A>>,
}

impl<S: CasStore, A: Algorithm> Cas<S, A> {
    /// A limit. Limits of one name in one store are one limit.
    ///
    /// # Errors
    /// If the name is not 1 to 64 letters, digits and any of `. _ -`, or if the algorithm is refused.
    ///
    /// ```
    /// use tower_throttle::{Quota, TokenBucket, store::cas::{Cas, MemoryStore}};
    ///
    /// let bucket = TokenBucket::new(Quota::per_second(10));
    /// let error = Cas::new(MemoryStore::new(), "a b", bucket).unwrap_err();
    /// assert!(error.to_string().starts_with("name: \"a b\" is not allowed; give 1 to 64 letters"));
    /// ```
    pub fn new<I>(store: S, name: &str, algorithm: I) -> Result<Self, ConfigError>
    where
        I: IntoAlgorithm<Algorithm = A>,
    {
        check_name("name", name)?;
        let settings = store.settings();
        let decider = Decider::new(algorithm.into_algorithm(), S::RUNS)?;
        // A denial from the cache would not be counted.
        let caches = !decider.algorithm.capabilities().counts_denials;
        let inner = Inner {
            name_prefix: format!("{{{}:{name}:", settings.prefix),
            shared: Shared::new(store, settings.deadline),
            lanes: Lanes::new(10_000),
            deny_cache: caches.then(DenyCache::new),
        };
        Ok(Self {
            inner: Arc::new(inner),
            decider: Arc::new(decider),
        })
    }

    /// Sets how long a call may take, by default 100 ms, or what is set for a `Redis`. Conflicts with other
    /// machines are retried within it.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tower_throttle::{Quota, TokenBucket};
    /// use tower_throttle::store::{Backend, cas::{Cas, Fault, Faulty, MemoryStore}};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = Faulty::new(MemoryStore::new());
    /// let limit = Cas::new(store.clone(), "api", TokenBucket::new(Quota::per_second(10)))?
    ///     .deadline(Duration::from_millis(20));
    /// store.plan([Fault::Delay(Duration::from_secs(60))]);
    /// let error = limit.decide("alice", 1).await.unwrap_err();
    /// assert_eq!(error.to_string(), "memory: no decision within 20ms");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the limit was cloned before, or a call is under way.
    #[must_use]
    #[track_caller]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        expect_unused(&mut self.inner).shared.deadline = deadline;
        self
    }

    /// Sets of about how many keys the last record is kept, by default 10,000. The next decision on such a
    /// key needs one round trip instead of two. With zero, every decision reads the store first, except for calls
    /// that wait for each other.
    ///
    /// ```
    /// use tower_throttle::{Quota, TokenBucket, store::{Backend, cas::{Cas, MemoryStore}}};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let bucket = TokenBucket::new(Quota::per_hour(10));
    /// let limit = Cas::new(MemoryStore::new(), "api", bucket)?.cached_keys(0);
    /// for _ in 0..3 {
    ///     assert!(limit.decide("alice", 1).await?.is_admitted());
    /// }
    /// let stats = Backend::<str>::stats(&limit);
    /// assert_eq!((stats.store_calls, stats.conflicts), (6, 0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the limit was cloned before, or a call is under way.
    #[must_use]
    #[track_caller]
    pub fn cached_keys(mut self, keys: usize) -> Self {
        expect_unused(&mut self.inner).lanes = Lanes::new(keys);
        self
    }

    /// Asks the store again for every request of a key that is being denied. By default, a denial
    /// is repeated until it ends, for at most ten seconds, so clients far above their limits cost the store little. A
    /// refund or a reset through this limiter or its clones ends that at once; one through another machine takes effect
    /// when the cached denial ends.
    ///
    /// ```
    /// use tower_throttle::{FixedWindow, Quota, store::{Backend, cas::{Cas, MemoryStore}}};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = MemoryStore::new();
    /// let limit = Cas::new(store.clone(), "api", FixedWindow::new(Quota::per_day(1)))?
    ///     .without_deny_cache();
    /// assert!(limit.decide("alice", 1).await?.is_admitted());
    /// assert!(limit.decide("alice", 1).await?.is_denied());
    /// // Each request sees what the store holds now.
    /// store.clear();
    /// assert!(limit.decide("alice", 1).await?.is_admitted());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the limit was cloned before, or a call is under way.
    #[must_use]
    #[track_caller]
    pub fn without_deny_cache(mut self) -> Self {
        expect_unused(&mut self.inner).deny_cache = None;
        self
    }

    fn call<K: RemoteKey + ?Sized>(&self, key: &K, op: Op) -> AnyDecision {
        let Self { inner, decider } = self;
        let mut key = key_name(&inner.name_prefix, key);
        key.push_str(&decider.layout);
        let now = MonotonicClock.now();
        let at_present = decider.at_present().map(Arc::new);
        let decider = at_present.unwrap_or_else(|| Arc::clone(decider));
        let call = KeyCall { op, decider };
        let version = match inner.known_denial(&key, &call, now) {
            Ok(denial) => return AnyDecision::ready(Ok(denial)),
            Err(version) => version,
        };
        if let (Some(cache), true) = (&inner.deny_cache, is_update(op)) {
            cache.invalidate(&key);
        }
        let waiting = Waiting {
            key: key.into(),
            call,
            queued_at: now,
            deadline: now.plus(inner.shared.deadline),
            version,
            reply_tx: None,
        };
        inner.send(waiting)
    }
}

impl<S: CasStore, A: Algorithm> Inner<S, A> {
    /// Where the calls of a key wait, and how many tasks serve them: for programs, if the store runs them, or for swaps.
    fn lane_of(&self, Waiting { key, call, .. }: &Waiting<A>) -> (Lane, usize) {
        let tasks = match S::RUNS {
            Runs::Scripts if call.decider.kernels.is_some() => IN_FLIGHT,
            Runs::All if self.shared.contended.has(key) => 1,
            _ => return (Lane::Key(Arc::clone(key)), 1),
        };
        let group = self.shared.store.group_of(key);
        let lane = group.map_or_else(|| Lane::KeyByProgram(Arc::clone(key)), Lane::Group);
        (lane, tasks)
    }

    /// Sends a call: its caller does if there are no others in the lane.
    fn send(self: &Arc<Self>, waiting: Waiting<A>) -> AnyDecision {
        let (lane, tasks) = self.lane_of(&waiting);
        let ends_by = self.ends_by(waiting.queued_at);
        let now = waiting.queued_at;
        if tasks == IN_FLIGHT && self.lanes.enter_alone(&lane, now, ends_by) {
            let inner = Arc::clone(self);
            let alone = Alone { inner, lane };
            return AnyDecision::pending(alone.send(waiting));
        }
        AnyDecision::pending(self.queue(&lane, tasks, waiting))
    }

    /// Queues a call, and starts a task if fewer than so many decide the calls of its lane.
    pub(super) fn push(self: &Arc<Self>, lane: &Lane, tasks: usize, mut waiting: Waiting<A>) {
        let runtime = match self.shared.runtime() {
            Ok(runtime) => runtime,
            Err(error) => return waiting.reply(Err(error)),
        };
        let now = MonotonicClock.now();
        let ends_by = self.ends_by(now);
        match self.lanes.push(lane, waiting, tasks, (now, ends_by)) {
            Ok(None) => {}
            Ok(Some(place)) => {
                let inner = Arc::clone(self);
                runtime.spawn(Driver { inner, place }.run());
            }
            Err(mut waiting) => {
                let text = format!("{}: too many calls are queued", S::NAME);
                waiting.reply(Err(StoreError::not_sent(text)));
            }
        }
    }

    /// Queues a call, for its caller.
    fn queue(
        self: &Arc<Self>,
        lane: &Lane,
        tasks: usize,
        mut waiting: Waiting<A>,
    ) -> impl Future<Output = Result<Decision, StoreError>> + Send + use<S, A> {
        let (now, deadline) = (waiting.queued_at, waiting.deadline);
        let (call, inner) = (waiting.call.clone(), Arc::clone(self));
        let (reply_tx, reply) = oneshot::channel();
        waiting.reply_tx = Some(reply_tx);
        self.push(lane, tasks, waiting);
        async move {
            let decided = match within(deadline, reply).await {
                Some(Ok(decided)) => decided,
                Some(Err(_)) => Err(shut_down(S::NAME)),
                // The task records the failure, if the call was sent at all.
                None => Err(inner.shared.deadline_exceeded()),
            };
            inner.end(&call, now, decided)
        }
    }

    /// The result of a call for its caller.
    fn end(
        &self,
        call: &KeyCall<A>,
        called_at: Tick,
        decided: Result<Decision, StoreError>,
    ) -> Result<Decision, StoreError> {
        let error = decided.as_ref().err();
        RemoteMetrics(S::NAME).call_ended(called_at, self.shared.deadline, error);
        decided.or_else(|error| {
            let denial = self.denial_instead(call, &error, called_at);
            denial.ok_or(error)
        })
    }
}

impl<S: CasStore, A: Algorithm> Alone<S, A> {
    /// Sends a call in the runtime in which it is made. A task would cost two changes between tasks.
    async fn send(self, waiting: Waiting<A>) -> Result<Decision, StoreError> {
        let Self { inner, lane } = &self;
        if Handle::try_current().is_err() {
            return inner.queue(lane, IN_FLIGHT, waiting).await;
        }
        let ends_at = waiting.deadline;
        let program = Calls::new(inner, vec![waiting], None);
        let decided = inner.run_program(&program, ends_at).await;
        let decided = decided.and_then(|mut results| results.swap_remove(0));
        let call = &program.own[0];
        let decided = inner.learn(call, program.asked_at, decided);
        inner.end(&call.call, call.queued_at, decided)
    }
}

impl<K: RemoteKey + ?Sized, S: CasStore, A: Algorithm> Backend<K> for Cas<S, A> {
    type Future = AnyDecision;

    fn apply(&self, key: &K, op: Op) -> AnyDecision {
        self.call(key, op)
    }

    /// Runs `op` in a task: a call that is dropped before it is decided is not counted.
    fn detach(&self, key: &K, op: Op) {
        // Without a runtime, no call was ever made. The breaker and the log report errors.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(self.apply(key, op));
        }
    }

    fn stats(&self) -> Stats {
        let shared = &self.inner.shared;
        Stats {
            store_calls: shared.calls.load(Ordering::Relaxed),
            conflicts: shared.conflicts.load(Ordering::Relaxed),
            ..Stats::default()
        }
    }

    fn quotas(&self) -> Vec<Quota> {
        self.decider.algorithm.quotas()
    }

    fn limits(&self) -> usize {
        self.decider.algorithm.capabilities().limits
    }
}

impl<S: CasStore, A: Algorithm> IntoBackend for Cas<S, A> {
    type Backend = Self;

    fn into_backend(self) -> Self {
        self
    }

    fn queues(backend: &Self) -> bool {
        backend.decider.algorithm.capabilities().books_turns()
    }
}

impl<S: CasStore, A: Algorithm> Cas<S, A> {
    /// The same limit under another quota, or its own, on the same values.
    fn under(&self, quota: Option<Quota>) -> Result<Self, ConfigError> {
        // Each time that a lockout took over a block under another quota, a key might get one more attempt.
        if self.decider.algorithm.capabilities().is_about_one_key {
            return Err(ConfigError::unsupported(
                "a quota per key for a lockout in a store",
                "count in this process, or give each quota a limiter, with `Quotas::tier`",
            ));
        }
        let own = under(&self.decider.algorithm, quota)?;
        // A key has one value under all its quotas.
        let has_script = self.decider.kernels.is_some();
        let own = Decider::of_same_type(own, has_script);
        if has_script && own.kernels.is_none() {
            return Err(ConfigError::unsupported(
                "a quota of a key that the script of Redis does not count exactly",
                "use whole microseconds, and at most 1,000 moments of a log",
            ));
        }
        Ok(Self {
            inner: Arc::clone(&self.inner),
            decider: Arc::new(own),
        })
    }
}

impl<K: RemoteKey + 'static, S: CasStore, A: Algorithm> QuotaPerKey<K> for Cas<S, A> {
    fn into_quotas(backend: Self) -> Result<UnderQuota<K>, ConfigError> {
        Ok(Box::new(move |quota| backend.under(quota).map(any)))
    }
}

/// Manual impl: derive would require `S: Clone` and `A: Clone` of the contents, which are shared.
impl<S: CasStore, A: Algorithm> Clone for Cas<S, A> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            decider: Arc::clone(&self.decider),
        }
    }
}

impl<S: CasStore, A: Algorithm> fmt::Debug for Cas<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cas")
            .field("name_prefix", &self.inner.name_prefix)
            .field("algorithm", &self.decider.algorithm)
            .field("store", &self.inner.shared.store)
            .finish_non_exhaustive()
    }
}
