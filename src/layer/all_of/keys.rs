//! Two keys per request.

use std::sync::Arc;

use super::PartAsk;
use crate::error::Rejection;
use crate::key::{Extracted, Key, KeyExtractor, KeyType};
use crate::layer::{options::LayerOptions, state::State};
use crate::respond::Event;

/// Finds the two keys of a request; made by [`LimitLayer::and`](crate::layer::LimitLayer::and).
///
/// A request that one extractor leaves alone ([`Extracted::Skip`]) is counted by the other key only.
/// A request that one of them rejects is rejected, unless the limit of that one is in shadow mode. Each key has a cost
/// and a priority of its own.
#[derive(Clone, Debug)]
pub struct AndKeys<A, B> {
    pub(in crate::layer) first: Part<A>,
    pub(in crate::layer) second: Part<B>,
}

/// How the key of one limit is found, its settings, and what counts the requests that have none.
pub(in crate::layer) type Part<K> = (K, LayerOptions, Arc<State<()>>);

/// The two keys of a request, with what it asks of each limit. A key is absent if its limit does not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyPair<A, B> {
    pub(crate) first: Option<(A, PartAsk)>,
    pub(crate) second: Option<(B, PartAsk)>,
}

impl<A: Key, B: Key> Key for KeyPair<A, B> {}

fn part<Req, K: KeyExtractor<Req>>(
    (keys, options, state): &Part<K>,
    request: &Req,
) -> Result<Option<(K::Key, PartAsk)>, Rejection> {
    let key = match keys.extract(request) {
        Extracted::Key(key) => key,
        Extracted::Skip => return Ok(None),
        Extracted::Reject(rejection) if options.shadow => {
            state.record(Event::Rejected(&rejection), true);
            return Ok(None);
        }
        Extracted::Reject(rejection) => return Err(rejection),
    };
    let ask = PartAsk {
        weight: keys.weigh(request),
        shadow: options.shadow,
        silent: options.silent,
        stated: true,
    };
    Ok(Some((key, ask)))
}

impl<Req, A: KeyExtractor<Req>, B: KeyExtractor<Req>> KeyExtractor<Req> for AndKeys<A, B> {
    type Key = KeyPair<A::Key, B::Key>;

    fn extract(&self, request: &Req) -> Extracted<Self::Key> {
        match (part(&self.first, request), part(&self.second, request)) {
            (Err(rejection), _) | (_, Err(rejection)) => Extracted::Reject(rejection),
            (Ok(None), Ok(None)) => Extracted::Skip,
            (Ok(first), Ok(second)) => Extracted::Key(KeyPair { first, second }),
        }
    }

    fn unread_proxy_header(&self, request: &Req) -> bool {
        self.first.0.unread_proxy_header(request) || self.second.0.unread_proxy_header(request)
    }
}

impl<MA, MB, A: KeyType<MA>, B: KeyType<MB>> KeyType<(MA, MB)> for AndKeys<A, B> {
    type Key = KeyPair<A::Key, B::Key>;
}
