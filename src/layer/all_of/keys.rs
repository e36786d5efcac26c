//! Two keys per request.

use super::PartAsk;
use crate::key::{Extracted, Key, KeyExtractor, KeyType};
use crate::layer::options::LayerOptions;

/// Finds the two keys of a request; made by [`LimitLayer::and`](crate::layer::LimitLayer::and).
///
/// A request that one extractor leaves alone ([`Extracted::Skip`]) is counted by the other key only.
/// A request that one of them rejects is rejected. Each key has a cost and a priority of its own.
#[derive(Clone, Copy, Debug)]
pub struct AndKeys<A, B> {
    first: (A, LayerOptions),
    second: (B, LayerOptions),
}

impl<A, B> AndKeys<A, B> {
    pub(in crate::layer) const fn new(first: (A, LayerOptions), second: (B, LayerOptions)) -> Self {
        Self { first, second }
    }
}

/// The two keys of a request, each of them absent if its limit does not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyPair<A, B> {
    pub(crate) first: Option<PartKey<A>>,
    pub(crate) second: Option<PartKey<B>>,
}

/// A key, and what the request asks of its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PartKey<K> {
    pub(crate) key: K,
    pub(crate) ask: PartAsk,
}

impl<A: Key, B: Key> Key for KeyPair<A, B> {}

fn part<Req, K: KeyExtractor<Req>>(
    (keys, options): &(K, LayerOptions),
    request: &Req,
) -> Extracted<PartKey<K::Key>> {
    keys.extract(request).map(|key| PartKey {
        key,
        ask: PartAsk {
            weight: keys.weigh(request),
            shadow: options.shadow,
            silent: options.silent,
            stated: true,
        },
    })
}

impl<Req, A: KeyExtractor<Req>, B: KeyExtractor<Req>> KeyExtractor<Req> for AndKeys<A, B> {
    type Key = KeyPair<A::Key, B::Key>;

    fn extract(&self, request: &Req) -> Extracted<Self::Key> {
        let first = match part(&self.first, request) {
            Extracted::Key(key) => Some(key),
            Extracted::Skip => None,
            Extracted::Reject(rejection) => return Extracted::Reject(rejection),
        };
        let second = match part(&self.second, request) {
            Extracted::Key(key) => Some(key),
            Extracted::Skip if first.is_none() => return Extracted::Skip,
            Extracted::Skip => None,
            Extracted::Reject(rejection) => return Extracted::Reject(rejection),
        };
        Extracted::Key(KeyPair { first, second })
    }

    fn unread_proxy_header(&self, request: &Req) -> bool {
        self.first.0.unread_proxy_header(request) || self.second.0.unread_proxy_header(request)
    }
}

impl<MA, MB, A: KeyType<MA>, B: KeyType<MB>> KeyType<(MA, MB)> for AndKeys<A, B> {
    type Key = KeyPair<A::Key, B::Key>;
}
