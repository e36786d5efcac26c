//! A limit per tier of customers.

use std::{
    fmt,
    future::Future,
    hash::{Hash, Hasher},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use crate::backend::{Backend, Fullness, IntoBackend, Losses, Op};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::StoreError;
use crate::quota::{Plan, Quota};

/// A limit per tier: the key is a pair of the tier and the customer.
///
/// Tiers that are not listed have the limit that it was made with, and share one count per customer:
/// one that can choose its tier gains nothing by inventing tiers. Each listed tier counts for itself: a
/// customer who changes to it begins there afresh. [`Decision::policy`] counts the limits of all tiers,
/// those of the unlisted first.
///
/// ```
/// use axum::{Router, extract::Request, http::StatusCode, routing::get};
/// use tower_throttle::{Quota, RateLimitLayer, Tiers, TokenBucket, key::Key};
///
/// #[derive(Clone, Copy, PartialEq, Eq, Hash)]
/// enum Plan { Free, Pro }
///
/// impl Key for Plan {}
///
/// fn customer(req: &Request) -> Result<(Plan, u64), StatusCode> {
///     let customer = req.extensions().get().copied(); // put there by authentication
///     customer.ok_or(StatusCode::UNAUTHORIZED)
/// }
///
/// let limits = Tiers::new(TokenBucket::new(Quota::per_minute(60)))
///     .tier(Plan::Pro, TokenBucket::new(Quota::per_minute(6_000)));
/// let layer = RateLimitLayer::new(customer, limits);
/// let app: Router = Router::new().route("/", get(|| async {})).layer(layer);
/// ```
///
/// For quotas that are known only at run time, such as those in a database, use a
/// [`PerKey`](crate::store::PerKey).
///
/// All tiers have limits of one type. [`AnyAlgorithm`](crate::AnyAlgorithm) is the type for tiers
/// with different algorithms; [`Handle::tier`](crate::Handle::tier) shows it, and how to change the
/// limit of a tier at run time.
#[must_use]
pub struct Tiers<T, L> {
    /// For every tier that is not listed.
    unlisted: Arc<L>,
    /// Few, so a linear search finds them.
    listed: Vec<(T, Arc<L>)>,
}

impl<T, L> Tiers<T, L> {
    /// `limiter` for every tier that is not listed.
    pub fn new(limiter: impl IntoBackend<Backend = L>) -> Self {
        Self {
            unlisted: Arc::new(limiter.into_backend()),
            listed: Vec::new(),
        }
    }

    /// `limiter` for `tier`, in place of an earlier one.
    pub fn tier(mut self, tier: T, limiter: impl IntoBackend<Backend: TierLimit<L>>) -> Self
    where
        T: PartialEq,
    {
        self.listed.retain(|(listed, _)| *listed != tier);
        let limiter = limiter.into_backend().into_limit();
        self.listed.push((tier, Arc::new(limiter)));
        self
    }

    /// The backend of `tier`.
    pub fn get(&self, tier: &T) -> &L
    where
        T: PartialEq,
    {
        self.indexed(tier).1
    }

    /// The backend of `tier`, and its position in [`iter`](Self::iter).
    pub(super) fn indexed(&self, tier: &T) -> (usize, &Arc<L>)
    where
        T: PartialEq,
    {
        let mut indexed = (1..).zip(&self.listed);
        indexed
            .find(|(_, (listed, _))| listed == tier)
            .map_or((0, &self.unlisted), |(index, (_, backend))| {
                (index, backend)
            })
    }

    /// The backend of `tier`, and how many limits come before its own.
    fn with_offset<K>(&self, tier: &T) -> (usize, &L)
    where
        T: PartialEq,
        L: Backend<K>,
    {
        let (index, backend) = self.indexed(tier);
        (self.iter().take(index).map(Backend::limits).sum(), backend)
    }

    fn iter(&self) -> impl Iterator<Item = &L> {
        let listed = self.listed.iter().map(|(_, backend)| &**backend);
        [&*self.unlisted].into_iter().chain(listed)
    }
}

impl<T, K, L> Backend<(T, K)> for Tiers<T, L>
where
    T: PartialEq + Send + Sync + 'static,
    K: Hash,
    L: Backend<K>,
{
    type Future = TierFuture<L::Future>;

    fn apply(&self, (tier, key): &(T, K), op: Op) -> Self::Future {
        let (offset, backend) = self.with_offset(tier);
        TierFuture {
            offset,
            future: backend.apply(key, op),
        }
    }

    fn decide(&self, (tier, key): &(T, K), cost: u64) -> Self::Future {
        let (offset, backend) = self.with_offset(tier);
        let future = backend.decide(key, cost);
        TierFuture { offset, future }
    }

    #[inline]
    fn try_admit(&self, (tier, key): &(T, K), cost: u64) -> bool {
        self.indexed(tier).1.try_admit(key, cost)
    }

    fn take_turn(&self, (tier, key): &(T, K), cost: u64, at: Tick) -> Option<Decision> {
        let (offset, backend) = self.with_offset(tier);
        let mut decision = backend.take_turn(key, cost, at)?;
        decision.policy += offset;
        Some(decision)
    }

    fn expected_wait(
        &self,
        (tier, key): &(T, K),
        ahead: u64,
        cost: u64,
        at: Tick,
    ) -> Option<Duration> {
        self.get(tier).expected_wait(key, ahead, cost, at)
    }

    fn current_decision(&self, (tier, key): &(T, K), cost: u64) -> Option<Decision> {
        let (offset, backend) = self.with_offset(tier);
        let mut decision = backend.current_decision(key, cost)?;
        decision.policy += offset;
        Some(decision)
    }

    fn detach(&self, (tier, key): &(T, K), op: Op) {
        self.get(tier).detach(key, op);
    }

    fn hash_queue<H: Hasher>(&self, (tier, key): &(T, K), state: &mut H) {
        let (index, backend) = self.indexed(tier);
        state.write_usize(index);
        backend.hash_queue(key, state);
    }

    fn fullness(&self) -> Option<Fullness> {
        self.iter()
            .filter_map(Backend::fullness)
            .reduce(|sum, of| sum + of)
    }

    fn losses(&self) -> Losses {
        let losses = self.iter().map(Backend::losses);
        losses.fold(Losses::default(), |sum, of_tier| sum + of_tier)
    }

    fn quotas(&self) -> Vec<Quota> {
        self.iter().flat_map(Backend::quotas).collect()
    }

    fn plan_of(&self, (tier, key): &(T, K)) -> Option<Plan> {
        self.get(tier).plan_of(key)
    }

    fn limits(&self) -> usize {
        self.iter().map(Backend::limits).sum()
    }

    fn queue_of(&self, (tier, key): &(T, K)) -> (u64, Duration) {
        self.get(tier).queue_of(key)
    }
}

impl<T: Send + Sync + 'static, L> IntoBackend for Tiers<T, L>
where
    L: IntoBackend<Backend = L> + Send + Sync + 'static,
{
    type Backend = Self;

    fn into_backend(self) -> Self {
        self
    }

    fn queues(backend: &Self) -> bool {
        backend.iter().any(L::queues)
    }

    fn decides_at_once(backend: &Self) -> bool {
        backend.iter().all(L::decides_at_once)
    }
}

/// The type of the limits of all tiers, `L`.
#[diagnostic::on_unimplemented(
    message = "all tiers have limits of one type: make each an `AnyAlgorithm::from(..)`, or give `{L}` and not `{Self}`",
    label = "not of the type of the first limit"
)]
pub trait TierLimit<L> {
    /// The limit itself.
    fn into_limit(self) -> L;
}

impl<L> TierLimit<L> for L {
    fn into_limit(self) -> L {
        self
    }
}

/// Manual impl: derive would require `L: Debug`.
impl<T: fmt::Debug, L> fmt::Debug for Tiers<T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tiers = self.listed.iter().map(|(tier, _)| tier);
        f.debug_list().entries(tiers).finish()
    }
}

/// The decision of one tier's backend, counted among the limits of all tiers.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct TierFuture<F> {
    offset: usize,
    future: F,
}

impl<F> Future for TierFuture<F>
where
    F: Future<Output = Result<Decision, StoreError>> + Unpin,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut decided = ready!(Pin::new(&mut self.future).poll(cx));
        if let Ok(decision) = &mut decided {
            decision.policy += self.offset;
        }
        Poll::Ready(decided)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, ready};

    use super::*;
    use crate::decision::Verdict;
    use crate::sync::{Mutex, lock};

    /// A backend whose every figure is that of its number.
    #[derive(Default)]
    struct Numbered(u64, Mutex<Vec<Op>>);

    impl Numbered {
        fn decision(&self) -> Decision {
            Decision::new(Verdict::Admit, self.0, 0, None, 0)
        }
    }

    impl Backend<u8> for Numbered {
        type Future = Ready<Result<Decision, StoreError>>;

        fn apply(&self, _: &u8, _: Op) -> Self::Future {
            ready(Ok(self.decision()))
        }

        fn take_turn(&self, _: &u8, _: u64, _: Tick) -> Option<Decision> {
            Some(self.decision())
        }

        fn expected_wait(&self, _: &u8, ahead: u64, _: u64, _: Tick) -> Option<Duration> {
            Some(Duration::from_secs(self.0 + ahead))
        }

        fn detach(&self, _: &u8, op: Op) {
            lock(&self.1).push(op);
        }

        fn fullness(&self) -> Option<Fullness> {
            let largest_use_percent = self.0;
            Some(Fullness {
                largest_use_percent,
                ..Fullness::default()
            })
        }

        fn losses(&self) -> Losses {
            Losses {
                denied: self.0,
                ..Losses::default()
            }
        }

        fn quotas(&self) -> Vec<Quota> {
            vec![Quota::per_day(self.0); 2]
        }

        fn plan_of(&self, _: &u8) -> Option<Plan> {
            Some(Plan::Quota(Quota::per_day(self.0)))
        }

        fn queue_of(&self, _: &u8) -> (u64, Duration) {
            (self.0, Duration::from_secs(self.0))
        }
    }

    impl IntoBackend for Numbered {
        type Backend = Self;

        fn into_backend(self) -> Self {
            self
        }
    }

    #[test]
    fn each_question_is_that_of_the_tier_or_of_all() {
        let numbered = |number| Numbered(number, Mutex::default());
        let tiers = Tiers::new(numbered(3)).tier('b', numbered(5));
        for (tier, number, first) in [('a', 3, 0), ('b', 5, 2)] {
            let key = (tier, 1);
            let decision = tiers.take_turn(&key, 1, Tick::ZERO).unwrap();
            assert_eq!((decision.limit, decision.policy), (number, first));
            tiers.detach(&key, Op::Reset);
            assert_eq!(*lock(&tiers.get(&tier).1), [Op::Reset]);
            let wait = tiers.expected_wait(&key, 1, 1, Tick::ZERO);
            assert_eq!(wait, Some(Duration::from_secs(number + 1)));
            assert_eq!(
                tiers.plan_of(&key),
                Some(Plan::Quota(Quota::per_day(number)))
            );
            assert_eq!(tiers.queue_of(&key), (number, Duration::from_secs(number)));
        }
        assert_eq!(tiers.fullness().unwrap().largest_use_percent, 5);
        assert_eq!(tiers.losses().denied, 8);
        assert_eq!(tiers.limits(), 4);
    }
}
