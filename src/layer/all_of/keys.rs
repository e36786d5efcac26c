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

/// The two keys of a request, with what it asks of each limit. A key is absent if its limit does not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyPair<A, B> {
    pub(crate) first: Option<(A, PartAsk)>,
    pub(crate) second: Option<(B, PartAsk)>,
}

impl<A: Key, B: Key> Key for KeyPair<A, B> {}

fn part<Req, K: KeyExtractor<Req>>(
    (keys, options): &(K, LayerOptions),
    request: &Req,
) -> Extracted<(K::Key, PartAsk)> {
    let ask = |key| {
        let ask = PartAsk {
            weight: keys.weigh(request),
            shadow: options.shadow,
            silent: options.silent,
            stated: true,
        };
        (key, ask)
    };
    keys.extract(request).map(ask)
}

impl<Req, A: KeyExtractor<Req>, B: KeyExtractor<Req>> KeyExtractor<Req> for AndKeys<A, B> {
    type Key = KeyPair<A::Key, B::Key>;

    fn extract(&self, request: &Req) -> Extracted<Self::Key> {
        let pair = |first, second| Extracted::Key(KeyPair { first, second });
        match (part(&self.first, request), part(&self.second, request)) {
            (Extracted::Reject(rejection), _) | (_, Extracted::Reject(rejection)) => {
                Extracted::Reject(rejection)
            }
            (Extracted::Key(first), Extracted::Key(second)) => pair(Some(first), Some(second)),
            (Extracted::Key(first), Extracted::Skip) => pair(Some(first), None),
            (Extracted::Skip, Extracted::Key(second)) => pair(None, Some(second)),
            (Extracted::Skip, Extracted::Skip) => Extracted::Skip,
        }
    }

    fn unread_proxy_header(&self, request: &Req) -> bool {
        self.first.0.unread_proxy_header(request) || self.second.0.unread_proxy_header(request)
    }
}

impl<MA, MB, A: KeyType<MA>, B: KeyType<MB>> KeyType<(MA, MB)> for AndKeys<A, B> {
    type Key = KeyPair<A::Key, B::Key>;
}
