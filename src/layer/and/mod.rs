//! Limits by two keys that admit a request together.

mod future;
mod keys;
mod parts;
mod queue_part;

pub use self::{
    future::AndFuture,
    keys::{AndKeys, KeyPair},
};
use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
    task::{Context, Poll, Waker},
};

use self::parts::{Calls, Parts};
pub(super) use self::queue_part::{Part, QueuePart};
use super::keyed::poll_once;
use crate::backend::{Backend, IntoBackend, Losses, Op};
use crate::decision::Decision;
use crate::quota::Quota;
use crate::receipt::Receipt;

/// Two limits, each with a key of its own; made by [`RateLimitLayer::and`](crate::RateLimitLayer::and).
///
/// A request passes if both limits admit it. If one of them denies it, neither counts it:
/// - In this process, the second limit is looked at before the first one takes the cost. A denied
///   request changes neither of them, unless other requests use up the second limit in between; then
///   the first one gets its cost back.
/// - With a limit on a server, the first limit takes the cost, then the second one decides. If it
///   denies, a task gives the cost back to the first.
///
/// So with a limit on a server the first limit counts a request that is denied in the end, from its
/// own decision until the refund has arrived: two calls later, and at most for the deadlines of both.
/// Other requests may be denied by it in the meantime, although they would have passed. Neither limit
/// ever admits more than it should. The refund gives back what is still taken of the cost, in full if
/// nothing has been refilled since. If it fails, because the server is down or the process ends, the
/// cost stays taken until time has refilled it. Put the limit that denies more often first: what the
/// first limit denies, the second never sees.
///
/// One of the limits may queue requests: the one that has a wait first. From then on a request for
/// which the other one has a wait is denied. [`Decision::policy`] counts the limits of the first,
/// then those of the second.
///
/// If one limit cannot decide because its server is down, the other one still counts the request,
/// and denies it if it has to.
///
/// Each limit can be an [`And`] itself, for up to four limits. A chain of five does not compile:
///
/// ```compile_fail,E0080
/// use tower::{ServiceExt, service_fn};
/// use tower_throttle::{AsError, Global, Quota, RateLimitLayer, TokenBucket};
/// # use tower::{BoxError, Layer};
///
/// let limit = || TokenBucket::new(Quota::per_second(10));
/// let four = RateLimitLayer::new(Global, limit())
///     .and(Global, limit())
///     .and(Global, limit())
///     .and(Global, limit());
/// let five = four.and(Global, limit()).respond(AsError);
/// let service = five.layer(service_fn(async |n: u8| Ok::<_, BoxError>(n)));
/// let _ = service.oneshot(1);
/// ```
///
/// Clones share both limits.
pub struct And<L1, L2>(Arc<Parts<L1, L2>>);

impl<L1, L2> And<L1, L2> {
    /// Both limits, for keys of type [`KeyPair`].
    ///
    /// ```
    /// use axum::{Router, extract::Request, routing::get};
    /// use tower_throttle::{Quota, RateLimitLayer, TokenBucket, layer::{And, KeyPair}};
    ///
    /// let limits = And::new(
    ///     TokenBucket::new(Quota::per_second(10)),
    ///     TokenBucket::new(Quota::per_second(1_000)),
    /// );
    /// let user_and_tenant = |req: &Request| KeyPair {
    ///     first: req.headers().get("user").cloned(),
    ///     second: req.headers().get("tenant").cloned(),
    /// };
    /// let app: Router = Router::new()
    ///     .route("/", get(|| async {}))
    ///     .layer(RateLimitLayer::new(user_and_tenant, limits));
    /// ```
    pub fn new(
        first: impl IntoBackend<Backend = L1>,
        second: impl IntoBackend<Backend = L2>,
    ) -> Self {
        Self::of(first.into_backend(), second.into_backend())
    }

    pub(super) fn of(first: L1, second: L2) -> Self {
        Self(Arc::new(Parts {
            first: Arc::new(first),
            second: Arc::new(second),
            queue: Arc::default(),
        }))
    }

    /// The first limit.
    pub fn first(&self) -> &L1 {
        &self.0.first
    }

    /// The second limit.
    pub fn second(&self) -> &L2 {
        &self.0.second
    }

    /// Both limits, and the one for which requests queue.
    pub(super) fn parts(&self) -> (&Arc<L1>, &Arc<L2>, &Arc<QueuePart>) {
        (&self.0.first, &self.0.second, &self.0.queue)
    }
}

impl<A, B, L1, L2> Backend<KeyPair<A, B>> for And<L1, L2>
where
    A: Hash + Clone + Send + Unpin + 'static,
    B: Hash + Clone + Send + Unpin + 'static,
    L1: Backend<A>,
    L2: Backend<B>,
{
    type Future = AndFuture<A, B, L1, L2>;

    const RECEIPT_WORDS: usize = L1::RECEIPT_WORDS + L2::RECEIPT_WORDS;

    fn apply(&self, key: &KeyPair<A, B>, op: Op) -> Self::Future {
        // With a longer chain, a denied request would keep what a limit has taken.
        const {
            assert!(
                <Self as Backend<KeyPair<A, B>>>::RECEIPT_WORDS <= Receipt::MOST_LIMITS,
                "a chain of `and` has at most four limits"
            );
        };
        let parts = &self.0;
        if let Op::Take(cost) = op {
            return self.decide(key, cost);
        }
        self.poll_once(key, parts.apply(key.as_refs(), op))
    }

    fn decide(&self, key: &KeyPair<A, B>, cost: u64) -> Self::Future {
        let parts = &self.0;
        if let (Some(a), Some(b)) = key.as_refs() {
            if let Some(denial) = parts.denial_ahead(a, b, cost) {
                return AndFuture::ready(Ok(denial));
            }
        }
        self.poll_once(key, parts.take(key.as_refs(), cost))
    }

    /// The limit for which requests queue replaces a request. The other one takes the cost as usual.
    fn decide_after_refund(
        &self,
        key: &KeyPair<A, B>,
        freed: u64,
        cost: u64,
        peek: bool,
    ) -> Option<Decision> {
        let parts = &self.0;
        let replace_first = |a, peek| parts.first.decide_after_refund(a, freed, cost, peek);
        let replace_second = |b, peek| parts.second.decide_after_refund(b, freed, cost, peek);
        let (first, second) = match (parts.queue.get()?, key.as_refs()) {
            (Part::First, (Some(a), None)) => (Some(replace_first(a, peek)?), None),
            (Part::Second, (None, Some(b))) => (None, Some(replace_second(b, peek)?)),
            (Part::First, (Some(a), Some(b))) => {
                let other = take_beside(&*parts.second, b, cost, peek)?;
                let first = replace_beside((&*parts.second, b), cost, other, peek, |peek| {
                    replace_first(a, peek)
                })?;
                (Some(first), Some(other))
            }
            (Part::Second, (Some(a), Some(b))) => {
                let other = take_beside(&*parts.first, a, cost, peek)?;
                let second = replace_beside((&*parts.first, a), cost, other, peek, |peek| {
                    replace_second(b, peek)
                })?;
                (Some(other), Some(second))
            }
            _ => return None,
        };
        Some(parts.peeked::<A>(first, second))
    }

    /// The request has left the queue of one limit; the other one gives its cost back.
    fn refund_replaced(&self, key: &KeyPair<A, B>, cost: u64, receipt: Receipt) {
        let parts = &self.0;
        let (a, b) = key.as_refs();
        let (first, second) = (receipt, receipt.skip(L1::RECEIPT_WORDS));
        match parts.queue.get() {
            Some(Part::First) => {
                if let Some(a) = a {
                    parts.first.refund_replaced(a, cost, first);
                }
                if let Some(b) = b {
                    parts.second.detach(b, Op::Cancel(cost, second));
                }
            }
            Some(Part::Second) => {
                if let Some(a) = a {
                    parts.first.detach(a, Op::Cancel(cost, first));
                }
                if let Some(b) = b {
                    parts.second.refund_replaced(b, cost, second);
                }
            }
            None => {}
        }
    }

    fn detach(&self, key: &KeyPair<A, B>, op: Op) {
        let (first, second) = Parts::<L1, L2>::split_op::<A>(op);
        if let Some(a) = &key.first {
            self.0.first.detach(a, first);
        }
        if let Some(b) = &key.second {
            self.0.second.detach(b, second);
        }
    }

    fn current_decision(&self, key: &KeyPair<A, B>, cost: u64) -> Option<Decision> {
        let parts = &self.0;
        let first = match &key.first {
            Some(a) => Some(parts.first.current_decision(a, cost)?),
            None => None,
        };
        let second = match &key.second {
            Some(b) => Some(parts.second.current_decision(b, cost)?),
            None => None,
        };
        Some(parts.peeked::<A>(first, second))
    }

    /// Requests queue for one of the limits, so the queue is that of this limit's key.
    fn hash_queue<H: Hasher>(&self, key: &KeyPair<A, B>, state: &mut H) {
        let parts = &self.0;
        match (parts.queue.get(), &key.first, &key.second) {
            (Some(Part::First), Some(a), _) => parts.first.hash_queue(a, state),
            (Some(Part::Second), _, Some(b)) => parts.second.hash_queue(b, state),
            _ => key.hash(state),
        }
    }

    fn receipt_at_turn(&self, key: &KeyPair<A, B>, receipt: Receipt) -> Receipt {
        let parts = &self.0;
        let len = L1::RECEIPT_WORDS;
        let (first, second) = (receipt, receipt.skip(len));
        let first = match &key.first {
            Some(a) => parts.first.receipt_at_turn(a, first),
            None => first,
        };
        first.then(
            len,
            match &key.second {
                Some(b) => parts.second.receipt_at_turn(b, second),
                None => second,
            },
        )
    }

    fn shares_queues(&self) -> bool {
        true
    }

    fn losses(&self) -> Losses {
        self.0.first.losses() + self.0.second.losses()
    }

    fn quotas(&self) -> Vec<Quota> {
        let mut quotas = self.0.first.quotas();
        quotas.extend(self.0.second.quotas());
        quotas
    }

    fn limits(&self) -> usize {
        self.0.first.limits() + self.0.second.limits()
    }

    fn counts_denials(&self) -> bool {
        self.0.first.counts_denials() || self.0.second.counts_denials()
    }
}

impl<L1, L2> And<L1, L2> {
    /// A ready future if both limits decide without I/O.
    fn poll_once<A, B>(
        &self,
        key: &KeyPair<A, B>,
        mut calls: Calls<L1::Future, L2::Future>,
    ) -> AndFuture<A, B, L1, L2>
    where
        A: Clone,
        B: Clone,
        L1: Backend<A>,
        L2: Backend<B>,
    {
        let mut cx = Context::from_waker(Waker::noop());
        match self.0.poll(key.as_refs(), &mut calls, &mut cx) {
            Poll::Ready(decided) => AndFuture::ready(decided),
            Poll::Pending => AndFuture::pending(Arc::clone(&self.0), key.clone(), calls),
        }
    }
}

impl<L1: Send + Sync + 'static, L2: Send + Sync + 'static> IntoBackend for And<L1, L2> {
    type Backend = Self;

    fn into_backend(self) -> Self {
        self
    }
}

/// What the limit that has no queue decides on a new request. `None` if it does not decide at once.
fn take_beside<K, L: Backend<K>>(limit: &L, key: &K, cost: u64, peek: bool) -> Option<Decision> {
    let looked = limit.current_decision(key, cost)?;
    if peek || !looked.is_admitted() {
        return Some(looked);
    }
    match poll_once(&mut limit.decide(key, cost)) {
        Poll::Ready(decided) => decided.ok(),
        Poll::Pending => None,
    }
}

/// What the limit with the queue decides then. If it denies, the other one gets the cost back.
fn replace_beside<K, L: Backend<K>>(
    (other, key): (&L, &K),
    cost: u64,
    taken: Decision,
    peek: bool,
    replace: impl FnOnce(bool) -> Option<Decision>,
) -> Option<Decision> {
    // A denied request replaces none.
    let looks = peek || !taken.is_admitted();
    let replaced = replace(looks);
    if !looks && replaced.is_none_or(|decision| decision.is_denied()) {
        other.detach(key, Op::Cancel(cost, taken.receipt()));
    }
    replaced
}

/// Manual impl: derive would require `L1: Clone` and `L2: Clone`.
impl<L1, L2> Clone for And<L1, L2> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<L1: fmt::Debug, L2: fmt::Debug> fmt::Debug for And<L1, L2> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("And")
            .field("first", &self.0.first)
            .field("second", &self.0.second)
            .finish()
    }
}
