//! Port: where the states of many keys live, and what can be done to them.

use std::{
    future::Future,
    hash::{Hash, Hasher},
    ops::Add,
    pin::Pin,
    task::{Context, Waker},
};

use crate::decision::Decision;
use crate::error::StoreError;
use crate::quota::Quota;

/// Decides for many keys.
///
/// Implementations differ in where the states live: in this process, in Redis, or behind another
/// backend. In process the future is ready at once and nothing is allocated.
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
    note = "`Tiers` needs a pair of a tier and a key; Redis needs `tower_throttle::store::redis::RedisKey` for a key of your own"
)]
pub trait Backend<K: ?Sized>: Send + Sync + 'static {
    /// Returns the decision.
    ///
    /// `Unpin`, so that it can be polled once in place and moved only if it is pending. A future
    /// that does I/O is boxed.
    type Future: Future<Output = Result<Decision, StoreError>> + Send + Unpin + 'static;

    /// Applies `op` to the state of `key`. Returns the decision; for an operation that decides
    /// nothing, an admission with the figures of the state that it left.
    fn apply(&self, key: &K, op: Op) -> Self::Future;

    /// Decides on a request of `cost` and takes the cost unless it is denied.
    fn decide(&self, key: &K, cost: u64) -> Self::Future {
        self.apply(key, Op::Take(cost))
    }

    /// Decides on a request of `cost` as if `freed` had been given back first. Unless the request is
    /// denied, or with `peek`, both then happen in one step.
    ///
    /// By this, a layer with [`Order::Newest`](crate::queue::Order::Newest) makes room in a full line.
    /// With `None`, new requests are denied while the line is full.
    fn decide_after_refund(&self, key: &K, freed: u64, cost: u64, peek: bool) -> Option<Decision> {
        let _ = (key, freed, cost, peek);
        None
    }

    /// Applies `op` without awaiting it: what a cancelled request gives back.
    ///
    /// A backend that does I/O has to make sure that the operation is finished although no future is
    /// kept; otherwise the cost stays taken.
    fn detach(&self, key: &K, op: Op) {
        let mut future = self.apply(key, op);
        let _ = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
    }

    /// The decision that a request of `cost` would get now, if that is known without I/O.
    ///
    /// With `None`, a request that has waited is told the figures of when it came.
    fn current_decision(&self, key: &K, cost: u64) -> Option<Decision> {
        let _ = (key, cost);
        None
    }

    /// Hashes what identifies the queue in which a request of `key` waits: by default, the key.
    fn hash_queue<H: Hasher>(&self, key: &K, state: &mut H)
    where
        K: Hash,
        Self: Sized,
    {
        key.hash(state);
    }

    /// Whether requests of different keys wait in one queue; see
    /// [`hash_queue`](Self::hash_queue).
    fn shares_queues(&self) -> bool {
        false
    }

    /// What it evicted or denied because it was full, in all so far.
    fn losses(&self) -> Losses {
        Losses::default()
    }

    /// Its limits, in the order in which [`Decision::policy`] counts them.
    fn quotas(&self) -> Vec<Quota>;

    /// How many limits it has; called for every decision of a backend that comes after this one.
    fn limits(&self) -> usize {
        self.quotas().len()
    }
}

/// How often a backend had no room for a key; [`Overflow`](crate::store::local::Overflow) says what
/// it does then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Losses {
    /// How many keys were evicted before their states were forgettable.
    pub evicted: u64,
    /// How many of those were being denied.
    pub evicted_denied: u64,
    /// How many requests were denied because there was no room for their key.
    pub denied: u64,
    /// How many requests were counted in a state shared by keys without room.
    pub shared: u64,
}

impl Add for Losses {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            evicted: self.evicted + other.evicted,
            evicted_denied: self.evicted_denied + other.evicted_denied,
            denied: self.denied + other.denied,
            shared: self.shared + other.shared,
        }
    }
}

/// An operation on the state of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// Decide, and take the cost unless it is denied.
    Take(u64),
    /// The decision that `Take` would return, taking nothing.
    Peek(u64),
    /// Give back what was taken, at most what is there.
    Refund(u64),
    /// Count as taken, even if that is more than allowed.
    Charge(u64),
    /// Forget the key.
    Reset,
}

/// What a layer accepts as its limit: an algorithm or a tuple of algorithms (in this process), or a
/// backend of any other kind.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a limit",
    label = "neither an algorithm nor a backend",
    note = "give an algorithm such as `TokenBucket::new(Quota::per_second(10))`, a tuple of algorithms, or a limiter of a store such as `redis.limiter(..)`",
    note = "for a backend of your own, write `impl tower_throttle::store::IntoBackend for {Self} {{ .. }}`"
)]
pub trait IntoBackend {
    /// The backend that it becomes.
    type Backend: Send + Sync + 'static;

    /// Makes the backend; called once, when the layer is built.
    ///
    /// # Panics
    /// If a setting is invalid or has no effect.
    #[track_caller]
    fn into_backend(self) -> Self::Backend;

    /// Makes a backend for a single key, for a layer whose requests all share one key.
    #[track_caller]
    fn into_single_key_backend(self) -> Self::Backend
    where
        Self: Sized,
    {
        self.into_backend()
    }
}
