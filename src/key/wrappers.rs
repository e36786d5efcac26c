//! Extractors made by methods of the layer.

use crate::error::Rejection;
use crate::key::{Extracted, KeyExtractor, Priority};

/// A condition on a request; closures `Fn(&Req) -> bool` implement it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a condition on `{Req}`: write `|req: &axum::extract::Request| ..`, with the type of the request, and return `bool`"
)]
pub trait Predicate<Req> {
    /// Whether `request` meets the condition.
    fn matches(&self, request: &Req) -> bool;
}

impl<Req, F: Fn(&Req) -> bool> Predicate<Req> for F {
    #[inline]
    fn matches(&self, request: &Req) -> bool {
        self(request)
    }
}

/// A type that a cost closure may return: only `u64`.
///
/// As the only implementation, it also makes integer literals in the closure `u64`.
#[diagnostic::on_unimplemented(
    message = "a cost is a `u64`, and this closure returns `{Self}`: write `u64::from(..)` or `.. as u64`",
    label = "the cost is not a `u64`"
)]
pub trait Cost: sealed::Sealed {}

impl Cost for u64 {}

mod sealed {
    #[expect(unnameable_types, reason = "sealed: no other type is a cost")]
    pub trait Sealed {}

    impl Sealed for u64 {}
}

/// An extractor with a cost per request; made by `RateLimitLayer::cost`.
#[derive(Clone, Copy, Debug)]
pub struct WithCost<K, F> {
    extractor: K,
    cost: F,
}

impl<K, F> WithCost<K, F> {
    pub(crate) const fn new(extractor: K, cost: F) -> Self {
        Self { extractor, cost }
    }
}

impl<Req, K: KeyExtractor<Req>, F: Fn(&Req) -> u64> KeyExtractor<Req> for WithCost<K, F> {
    type Key = K::Key;

    #[inline]
    fn extract(&self, request: &Req) -> Extracted<K::Key> {
        self.extractor.extract(request)
    }

    #[inline]
    fn cost(&self, request: &Req) -> u64 {
        (self.cost)(request)
    }

    #[inline]
    fn priority(&self, request: &Req) -> Priority {
        self.extractor.priority(request)
    }

    fn unread_proxy_header(&self, request: &Req) -> bool {
        self.extractor.unread_proxy_header(request)
    }
}

/// An extractor that does not limit some requests; made by `RateLimitLayer::skip`.
#[derive(Clone, Copy, Debug)]
pub struct WithSkip<K, P> {
    extractor: K,
    predicate: P,
}

impl<K, P> WithSkip<K, P> {
    pub(crate) const fn new(extractor: K, predicate: P) -> Self {
        Self {
            extractor,
            predicate,
        }
    }
}

impl<Req, K: KeyExtractor<Req>, P: Predicate<Req>> KeyExtractor<Req> for WithSkip<K, P> {
    type Key = K::Key;

    #[inline]
    fn extract(&self, request: &Req) -> Extracted<K::Key> {
        if self.predicate.matches(request) {
            Extracted::Skip
        } else {
            self.extractor.extract(request)
        }
    }

    #[inline]
    fn cost(&self, request: &Req) -> u64 {
        self.extractor.cost(request)
    }

    #[inline]
    fn priority(&self, request: &Req) -> Priority {
        self.extractor.priority(request)
    }

    fn unread_proxy_header(&self, request: &Req) -> bool {
        self.extractor.unread_proxy_header(request)
    }
}

/// An extractor that rejects some requests; made by `RateLimitLayer::block`.
#[derive(Clone, Debug)]
pub struct WithBlock<K, P> {
    extractor: K,
    predicate: P,
    rejection: Rejection,
}

impl<K, P> WithBlock<K, P> {
    pub(crate) const fn new(extractor: K, predicate: P, rejection: Rejection) -> Self {
        Self {
            extractor,
            predicate,
            rejection,
        }
    }
}

impl<Req, K: KeyExtractor<Req>, P: Predicate<Req>> KeyExtractor<Req> for WithBlock<K, P> {
    type Key = K::Key;

    #[inline]
    fn extract(&self, request: &Req) -> Extracted<K::Key> {
        if self.predicate.matches(request) {
            Extracted::Reject(self.rejection.clone())
        } else {
            self.extractor.extract(request)
        }
    }

    #[inline]
    fn cost(&self, request: &Req) -> u64 {
        self.extractor.cost(request)
    }

    #[inline]
    fn priority(&self, request: &Req) -> Priority {
        self.extractor.priority(request)
    }

    fn unread_proxy_header(&self, request: &Req) -> bool {
        self.extractor.unread_proxy_header(request)
    }
}
