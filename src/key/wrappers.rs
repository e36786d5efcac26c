//! Extractors made by methods of the layer.

use std::convert::Infallible;

use crate::error::Rejection;
use crate::key::{Extracted, KeyExtractor, Weight};

/// A condition on a request; closures `Fn(&Req) -> bool` implement it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a condition on `{Req}`: write `|req: &axum::extract::Request| ..`, with the type of the request, and return `bool`"
)]
pub(crate) trait Predicate<Req> {
    /// Whether `request` meets the condition.
    ///
    /// # Errors
    /// If that is not known, as without the address of the client. The request is then rejected.
    fn matches(&self, request: &Req) -> Result<bool, Rejection>;
}

impl<Req, F: Fn(&Req) -> bool> Predicate<Req> for F {
    fn matches(&self, request: &Req) -> Result<bool, Rejection> {
        Ok(self(request))
    }
}

/// An extractor with a setting of the layer: `RateLimitLayer::cost` makes a `With<K, Costs<F>>`, `skip` and
/// `block` a `With<K, Filter<P>>`, and `priority` a `With<K, Priorities<F>>`.
#[derive(Clone, Copy, Debug)]
pub struct With<K, S> {
    extractor: K,
    setting: S,
}

impl<K, S> With<K, S> {
    pub(crate) const fn new(extractor: K, setting: S) -> Self {
        Self { extractor, setting }
    }
}

/// What a setting says of a request in place of the extractor, if it says something.
pub(crate) trait KeySetting<Req> {
    /// That the request is not counted.
    fn filter(&self, request: &Req) -> Option<Extracted<Infallible>> {
        let _ = request;
        None
    }

    /// Its weight, in place of `weight`.
    fn weigh(&self, request: &Req, weight: Weight) -> Weight {
        let _ = request;
        weight
    }
}

impl<Req, K: KeyExtractor<Req>, S: KeySetting<Req>> KeyExtractor<Req> for With<K, S> {
    type Key = K::Key;

    fn extract(&self, request: &Req) -> Extracted<K::Key> {
        match self.setting.filter(request) {
            Some(filtered) => filtered.map(|key| match key {}),
            None => self.extractor.extract(request),
        }
    }

    fn weigh(&self, request: &Req) -> Weight {
        let weight = self.extractor.weigh(request);
        self.setting.weigh(request, weight)
    }

    fn unread_proxy_header(&self, request: &Req) -> bool {
        self.extractor.unread_proxy_header(request)
    }
}

/// A cost per request.
#[derive(Clone, Copy, Debug)]
pub struct Costs<F>(pub(crate) F);

impl<Req, F: Fn(&Req) -> u64> KeySetting<Req> for Costs<F> {
    fn weigh(&self, request: &Req, weight: Weight) -> Weight {
        let cost = (self.0)(request);
        Weight { cost, ..weight }
    }
}

/// Requests that are not counted: without a rejection they are not limited.
#[derive(Clone, Debug)]
pub struct Filter<P> {
    predicate: P,
    rejection: Option<Rejection>,
}

impl<P> Filter<P> {
    pub(crate) const fn new(predicate: P, rejection: Option<Rejection>) -> Self {
        Self {
            predicate,
            rejection,
        }
    }
}

impl<Req, P: Predicate<Req>> KeySetting<Req> for Filter<P> {
    fn filter(&self, request: &Req) -> Option<Extracted<Infallible>> {
        match self.predicate.matches(request) {
            Ok(false) => None,
            Ok(true) => Some(match &self.rejection {
                None => Extracted::Skip,
                Some(rejection) => Extracted::Reject(rejection.clone()),
            }),
            Err(unknown) => Some(Extracted::Reject(unknown)),
        }
    }
}

/// A priority per request.
#[derive(Clone, Copy, Debug)]
pub struct Priorities<F>(pub(crate) F);

impl<Req, F: Fn(&Req) -> u8> KeySetting<Req> for Priorities<F> {
    fn weigh(&self, request: &Req, weight: Weight) -> Weight {
        let priority = (self.0)(request);
        Weight { priority, ..weight }
    }
}
