//! The `Backend` trait: stores the states of many keys and applies operations to them.

use std::{
    future::Future,
    ops::Add,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use crate::clock::Tick;
use crate::decision::{Decision, LineCosts};
use crate::error::StoreError;
use crate::quota::{Plan, Quota};
use crate::receipt::Receipt;

/// Stores the states of many keys and decides on their requests.
///
/// Implementations differ in where they store the states: in this process, in Redis, or in another
/// backend that they wrap. In process the future is ready at once and nothing is allocated.
///
/// ```
/// use std::future::{Ready, ready};
/// use tower_throttle::{AsError, Decision, Global, Quota, RateLimitLayer, StoreError, Verdict};
/// use tower_throttle::store::{Backend, IntoBackend, Op};
///
/// /// Denies everything.
/// struct Closed;
///
/// impl<K: ?Sized> Backend<K> for Closed {
///     type Future = Ready<Result<Decision, StoreError>>;
///
///     fn apply(&self, _: &K, _: Op) -> Self::Future {
///         ready(Ok(Decision::new(Verdict::Deny, 0, 0, None, 0)))
///     }
///
///     fn quotas(&self) -> Vec<Quota> {
///         Vec::new()
///     }
/// }
///
/// impl IntoBackend for Closed {
///     type Backend = Self;
///
///     fn into_backend(self) -> Self {
///         self
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use tower::{BoxError, Layer, ServiceExt, service_fn};
///
/// let layer = RateLimitLayer::new(Global, Closed).respond(AsError);
/// let service = layer.layer(service_fn(async |n: u8| Ok::<_, BoxError>(n)));
/// assert!(service.oneshot(1).await.is_err());
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot decide for keys of type `{K}`",
    label = "not a backend for these keys",
    note = "`Quotas` needs a lookup that is asked about these keys; a remote store needs `tower_throttle::store::remote::RemoteKey` for a key of your own"
)]
pub trait Backend<K: ?Sized>: Send + Sync + 'static {
    /// The future that resolves to the decision.
    ///
    /// It is `Unpin`, so that it can be polled once in place and is moved only if it is pending.
    /// A future that does I/O is boxed.
    type Future: Future<Output = Result<Decision, StoreError>> + Send + Unpin + 'static;

    /// Applies `op` to the state of `key` and returns the decision.
    ///
    /// An operation that decides nothing returns an admission with the figures of the new state.
    fn apply(&self, key: &K, op: Op) -> Self::Future;

    /// Decides on a request of `cost` and takes the cost unless the request is denied.
    fn decide(&self, key: &K, cost: u64) -> Self::Future {
        self.apply(key, Op::Take(cost))
    }

    /// Decides as [`decide`](Self::decide) does, and returns what `done` makes of the decision, or the future of one
    /// that is not known at once.
    ///
    /// A table in this process calls `done` where it decides, so that no figure is computed that `done` does not read.
    ///
    /// # Errors
    /// The future of a decision that is not known yet.
    fn decide_now<T>(
        &self,
        key: &K,
        cost: u64,
        done: impl Fn(Result<Decision, StoreError>) -> T,
    ) -> Result<T, Self::Future>
    where
        Self: Sized,
    {
        let mut deciding = self.decide(key, cost);
        match Pin::new(&mut deciding).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(decided) => Ok(done(decided)),
            Poll::Pending => Err(deciding),
        }
    }

    /// Decides on a request that has waited in line for the moment `at`, as of that moment, which may be over.
    /// If it does not pass then, it passes as of a moment at most `late` after it: the verdict is that
    /// [wait](crate::Verdict::Wait).
    /// Otherwise it is denied, and may ask again when `retry_after` is over, counted from `at`.
    ///
    /// `None` if the decision needs I/O, or if the limit counts denials, as a line would hide most of them. Then a
    /// request that waits in a layer books its turn, by [`Op::Reserve`].
    fn take_turn(&self, key: &K, cost: u64, at: Tick, late: Duration) -> Option<Decision> {
        let _ = (key, cost, at, late);
        None
    }

    /// How long after `at` a request of `cost` takes its turn behind others: at least and at most. `None` if it never
    /// can, or if that is not known without I/O. By default as if there were no others.
    fn expected_wait(&self, key: &K, costs: LineCosts, at: Tick) -> Option<[Duration; 2]> {
        let _ = at;
        let alone = self.current_decision(key, costs.own)?;
        alone.until_admitted().map(|wait| [wait; 2])
    }

    /// Applies `op` without awaiting it, for the refund of a cancelled request.
    ///
    /// The caller keeps no future. A backend that does I/O must complete the operation anyway,
    /// otherwise the cost stays taken.
    fn detach(&self, key: &K, op: Op) {
        let mut future = self.apply(key, op);
        let _ = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
    }

    /// The decision that a request of `cost` would get now, if it is known without I/O.
    ///
    /// If it is `None`, a request that has waited reports the figures of its original decision.
    fn current_decision(&self, key: &K, cost: u64) -> Option<Decision> {
        let _ = (key, cost);
        None
    }

    /// How full it is, what it has lost because it was full, and what it has asked of a store. The default if that is not
    /// known without I/O.
    ///
    /// It may read all states, so it is for an operator and not for each request.
    fn stats(&self) -> Stats {
        Stats::default()
    }

    /// The quotas of its limits. [`Decision::policy`] is an index into them.
    fn quotas(&self) -> Vec<Quota>;

    /// The plan of `key` and the quotas that it means, if each key has its own, as in
    /// [`Quotas`](crate::store::Quotas). Response headers state them instead of [`quotas`](Self::quotas).
    fn plan_of(&self, key: &K) -> Option<(Plan, Vec<Quota>)> {
        let _ = key;
        None
    }

    /// The number of its limits. In a chain of backends, it is called for every decision of a later
    /// one.
    fn limits(&self) -> usize {
        self.quotas().len()
    }

    /// Of how many backends it consists, each of which may take a cost: of two or more if it is a
    /// [`Fallback`](crate::store::Fallback). One that wraps another returns the number of that.
    fn backends(&self) -> u32 {
        1
    }
}

/// A backend whose type only the program knows, such as an `Arc<dyn Backend<K, Future = F>>`, is one too.
impl<K: ?Sized, B: Backend<K> + ?Sized> Backend<K> for Arc<B> {
    type Future = B::Future;

    fn apply(&self, key: &K, op: Op) -> B::Future {
        (**self).apply(key, op)
    }

    fn decide(&self, key: &K, cost: u64) -> B::Future {
        (**self).decide(key, cost)
    }

    fn take_turn(&self, key: &K, cost: u64, at: Tick, late: Duration) -> Option<Decision> {
        (**self).take_turn(key, cost, at, late)
    }

    fn expected_wait(&self, key: &K, costs: LineCosts, at: Tick) -> Option<[Duration; 2]> {
        (**self).expected_wait(key, costs, at)
    }

    fn detach(&self, key: &K, op: Op) {
        (**self).detach(key, op);
    }

    fn current_decision(&self, key: &K, cost: u64) -> Option<Decision> {
        (**self).current_decision(key, cost)
    }

    fn stats(&self) -> Stats {
        (**self).stats()
    }

    fn quotas(&self) -> Vec<Quota> {
        (**self).quotas()
    }

    fn plan_of(&self, key: &K) -> Option<(Plan, Vec<Quota>)> {
        (**self).plan_of(key)
    }

    fn limits(&self) -> usize {
        (**self).limits()
    }

    fn backends(&self) -> u32 {
        (**self).backends()
    }
}

impl<B: Send + Sync + ?Sized + 'static> IntoBackend for Arc<B> {
    type Backend = Self;

    fn into_backend(self) -> Self {
        self
    }
}

/// How full a backend in this process is, and what it has lost because it was full; see [`Backend::stats`].
///
/// ```
/// use tower_throttle::{FixedWindow, Local, Quota};
///
/// let limit = Local::new(FixedWindow::new(Quota::per_day(10))).capacity(1_000);
/// for _ in 0..8 {
///     limit.check("ann", 1);
/// }
/// limit.check("bob", 1);
/// let stats = limit.stats();
/// assert_eq!((stats.live, stats.capacity, stats.largest_use_percent), (2, 1_000, 80));
/// assert_eq!((stats.evicted, stats.denied), (0, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// How many keys fit, as it was set. 0 if the keys are not counted.
    pub capacity: usize,
    /// The number of slots, at least a third more than the capacity.
    pub slots: usize,
    /// The keys that have used something, whose states have not expired.
    pub live: usize,
    /// The bytes of the table, which are allocated at once, when it is first used. States may allocate more, as logs do.
    pub table_bytes: usize,
    /// The largest part of its limit that a key has used, in percent and rounded down: 100 if a key can use
    /// nothing now.
    pub largest_use_percent: u64,
    /// Keys that were evicted before their states had expired; see [`Overflow`](crate::store::local::Overflow).
    pub evicted: u64,
    /// Evicted keys that were over their limit.
    pub evicted_denied: u64,
    /// Requests that were denied because there was no free slot for their key.
    pub denied: u64,
    /// Charges that were lost because there was no free slot for their key.
    pub lost_charges: u64,
    /// How often a value in a store was read or swapped, or exchanged by a machine of a fleet. What a store runs itself, as
    /// Redis does, is not counted.
    pub store_calls: u64,
    /// Writes that found another version, because another machine had changed the key.
    pub conflicts: u64,
}

impl Add for Stats {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            capacity: self.capacity.saturating_add(other.capacity),
            slots: self.slots.saturating_add(other.slots),
            live: self.live.saturating_add(other.live),
            table_bytes: self.table_bytes.saturating_add(other.table_bytes),
            largest_use_percent: self.largest_use_percent.max(other.largest_use_percent),
            evicted: self.evicted + other.evicted,
            evicted_denied: self.evicted_denied + other.evicted_denied,
            denied: self.denied + other.denied,
            lost_charges: self.lost_charges + other.lost_charges,
            store_calls: self.store_calls + other.store_calls,
            conflicts: self.conflicts + other.conflicts,
        }
    }
}

/// An operation on the state of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// Decide on a cost, and take it unless it is denied.
    Take(u64),
    /// Take a cost for a request that goes when its turn comes, after the wait in the decision. Denied if more
    /// than `queue` units would wait, or if the wait would be longer than `max_wait`. A limit without turns, such
    /// as a window, decides as for `Take`.
    Reserve {
        /// What the request costs.
        cost: u64,
        /// How many units may wait, with the request's own.
        queue: u64,
        /// How long the request may wait.
        max_wait: Duration,
    },
    /// Return the decision that `Take` would return, and take nothing.
    Peek(u64),
    /// Give back what is still taken of a cost, given the [`Receipt`] of the decision that took it.
    /// What time has returned since then is not given back again.
    Refund(u64, Receipt),
    /// Give back the cost of a request that has left before its turn. A bucket gives it back only if that is the last
    /// turn, as the requests behind it do not move up; otherwise the turn passes unused.
    Cancel(u64, Receipt),
    /// Give back the cost of a request that succeeded, as [`Refund`](Self::Refund) does. A
    /// [`Lockout`](crate::Lockout) with
    /// [`clear_on_success`](crate::Lockout::clear_on_success) also forgets the failures before it.
    Forgive(u64, Receipt),
    /// Take a cost even if the limit does not allow it.
    Charge(u64),
    /// Reset the key to unused.
    Reset,
}

/// A conversion into a [`Backend`]: the types that a layer accepts as its limit.
///
/// It is implemented for algorithms and tuples of algorithms, which become a table in this process,
/// and for all backends.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a limit",
    label = "neither an algorithm nor a backend",
    note = "give an algorithm such as `TokenBucket::new(Quota::per_second(10))`, a tuple of algorithms, or a limiter of a store such as `redis.limiter(..)`",
    note = "for a backend of your own, write `impl tower_throttle::store::IntoBackend for {Self} {{ .. }}`"
)]
pub trait IntoBackend {
    /// The type of the backend.
    type Backend: Send + Sync + 'static;

    /// Creates the backend. Called once, when the layer is built.
    ///
    /// # Panics
    /// If a setting is invalid or has no effect.
    #[track_caller]
    fn into_backend(self) -> Self::Backend;

    /// Creates a backend for a single key, for a layer whose requests all share one key.
    #[track_caller]
    fn into_single_key_backend(self) -> Self::Backend
    where
        Self: Sized,
    {
        self.into_backend()
    }

    /// Whether a request can book a turn in `backend`, by [`Op::Reserve`]. Otherwise a layer has no queue, unless
    /// `backend` [decides at once](Self::decides_at_once).
    fn queues(backend: &Self::Backend) -> bool {
        let _ = backend;
        true
    }

    /// Whether `backend` decides by [`take_turn`](Backend::take_turn), so that a layer can have a line.
    fn decides_at_once(backend: &Self::Backend) -> bool {
        let _ = backend;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_has_the_larger_use_and_the_sum_of_each_other_number() {
        let (mut one, mut use_of) = (Stats::default(), Stats::default());
        (one.capacity, one.slots, one.live, one.table_bytes) = (1, 2, 3, 4);
        (one.evicted, one.evicted_denied, one.denied) = (5, 6, 7);
        (one.lost_charges, one.store_calls, one.conflicts) = (8, 9, 10);
        (one.largest_use_percent, use_of.largest_use_percent) = (11, 12);
        let text = format!("{:?} {:?}", one + one, use_of + one);
        let numbers = text.split(|c: char| !c.is_ascii_digit());
        let numbers: Vec<u64> = numbers.filter_map(|number| number.parse().ok()).collect();
        let sums = [2, 4, 6, 8, 11, 10, 12, 14, 16, 18, 20];
        assert_eq!(
            numbers,
            [sums, [1, 2, 3, 4, 12, 5, 6, 7, 8, 9, 10]].concat()
        );
    }
}
