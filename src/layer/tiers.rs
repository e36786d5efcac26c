//! Another limit for another kind of customer.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::OnceLock,
    task::{Context, Poll, ready},
};

use crate::backend::{Backend, IntoBackend, Losses, Op};
use crate::decision::Decision;
use crate::error::StoreError;
use crate::quota::Quota;

/// One limit for each tier: the key is a pair of the tier and who is counted.
///
/// Tiers that are not listed get the limit that it was made with. Each tier counts for itself, so
/// a customer who changes to another one begins there afresh. [`Decision::policy`] counts the
/// limits of all tiers, first those of the unlisted.
///
/// ```
/// use axum::extract::Request;
/// use tower_throttle::{Quota, RateLimitLayer, Tiers, TokenBucket, key::Key};
///
/// #[derive(Clone, Copy, PartialEq, Eq, Hash)]
/// enum Plan { Free, Pro }
///
/// impl Key for Plan {}
///
/// fn customer(req: &Request) -> Option<(Plan, u64)> {
///     req.extensions().get().copied() // put there by authentication
/// }
///
/// let limits = Tiers::new(TokenBucket::new(Quota::per_minute(60)))
///     .tier(Plan::Pro, TokenBucket::new(Quota::per_minute(6_000)));
/// let layer = RateLimitLayer::new(customer, limits);
/// # let _: axum::Router = axum::Router::new().layer(layer);
/// ```
#[must_use]
pub struct Tiers<T, L> {
    others: Tier<L>,
    /// Few, so that they are looked through in turn.
    tiers: Vec<(T, Tier<L>)>,
}

struct Tier<L> {
    limiter: L,
    /// How many limits it holds, counted when first asked: with which key is not known before.
    limits: OnceLock<usize>,
}

impl<L> Tier<L> {
    const fn new(limiter: L) -> Self {
        Self {
            limiter,
            limits: OnceLock::new(),
        }
    }

    fn limits<K>(&self) -> usize
    where
        L: Backend<K>,
    {
        *self.limits.get_or_init(|| self.limiter.quotas().len())
    }
}

impl<T, L> Tiers<T, L> {
    /// `limiter` for every tier that is not listed.
    pub fn new(limiter: impl IntoBackend<Backend = L>) -> Self {
        Self {
            others: Tier::new(limiter.into_backend()),
            tiers: Vec::new(),
        }
    }

    /// `limiter` for `tier`.
    pub fn tier(mut self, tier: T, limiter: impl IntoBackend<Backend = L>) -> Self {
        self.tiers.push((tier, Tier::new(limiter.into_backend())));
        self
    }

    /// The limiter of `tier`.
    pub fn get(&self, tier: &T) -> &L
    where
        T: PartialEq,
    {
        let found = self.tiers.iter().find(|(of, _)| of == tier);
        &found.map_or(&self.others, |(_, listed)| listed).limiter
    }

    /// The limiter of `tier`, and how many limits come before its own.
    fn numbered<K>(&self, tier: &T) -> (usize, &L)
    where
        T: PartialEq,
        L: Backend<K>,
    {
        let Some(at) = self.tiers.iter().position(|(of, _)| of == tier) else {
            return (0, &self.others.limiter);
        };
        let passed = self.tiers[..at].iter().map(|(_, listed)| listed);
        let passed = [&self.others].into_iter().chain(passed);
        let before = passed.map(Tier::limits).sum();
        (before, &self.tiers[at].1.limiter)
    }
}

impl<T, K, L> Backend<(T, K)> for Tiers<T, L>
where
    T: PartialEq + Send + Sync + 'static,
    L: Backend<K>,
{
    type Future = TierFuture<L::Future>;

    fn apply(&self, (tier, key): &(T, K), op: Op) -> Self::Future {
        let (before, limiter) = self.numbered(tier);
        TierFuture {
            before,
            future: limiter.apply(key, op),
        }
    }

    fn look(&self, (tier, key): &(T, K)) -> Option<Decision> {
        let (before, limiter) = self.numbered(tier);
        let mut figures = limiter.look(key)?;
        figures.policy += before;
        Some(figures)
    }

    fn detach(&self, (tier, key): &(T, K), op: Op) {
        self.get(tier).detach(key, op);
    }

    fn losses(&self) -> Losses {
        let listed = self.tiers.iter().map(|(_, listed)| listed);
        let all = [&self.others].into_iter().chain(listed);
        all.fold(Losses::default(), |sum, tier| {
            let of_tier = tier.limiter.losses();
            Losses {
                evicted: sum.evicted + of_tier.evicted,
                evicted_denied: sum.evicted_denied + of_tier.evicted_denied,
                denied: sum.denied + of_tier.denied,
                shared: sum.shared + of_tier.shared,
            }
        })
    }

    fn quotas(&self) -> Vec<Quota> {
        let listed = self.tiers.iter().map(|(_, listed)| listed);
        let all = [&self.others].into_iter().chain(listed);
        all.flat_map(|tier| tier.limiter.quotas()).collect()
    }
}

impl<T: Send + Sync + 'static, L: Send + Sync + 'static> IntoBackend for Tiers<T, L> {
    type Backend = Self;

    fn into_backend(self) -> Self {
        self
    }
}

/// By hand: limiters need no `Debug`.
impl<T: fmt::Debug, L> fmt::Debug for Tiers<T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tiers = self.tiers.iter().map(|(tier, _)| tier);
        f.debug_list().entries(tiers).finish()
    }
}

/// The answer of one tier's limiter, counted among the limits of all.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct TierFuture<F> {
    before: usize,
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
            decision.policy += self.before;
        }
        Poll::Ready(decided)
    }
}
