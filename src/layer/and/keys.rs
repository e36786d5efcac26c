//! Two keys per request.

use crate::key::{Extracted, Key, KeyExtractor, KeyType, Priority, joint_cost};

/// Finds the two keys of a request; made by [`RateLimitLayer::and`](crate::RateLimitLayer::and).
///
/// A request that one extractor leaves alone ([`Extracted::Skip`]) is counted by the other key only.
/// A request that one of them rejects is rejected. The larger cost counts for both, and the lower
/// priority.
#[derive(Clone, Copy, Debug)]
pub struct AndKeys<A, B> {
    first: A,
    second: B,
}

impl<A, B> AndKeys<A, B> {
    pub(in crate::layer) const fn new(first: A, second: B) -> Self {
        Self { first, second }
    }
}

/// The two keys of a request, each of them absent if its limit does not apply.
///
/// ```
/// use tower_throttle::layer::KeyPair;
///
/// let pair = KeyPair::new("alice", ());
/// assert_eq!(pair, KeyPair { first: Some("alice"), second: Some(()) });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyPair<A, B> {
    /// The key of the first limit.
    pub first: Option<A>,
    /// The key of the second limit.
    pub second: Option<B>,
}

impl<A, B> KeyPair<A, B> {
    /// Both keys.
    pub const fn new(first: A, second: B) -> Self {
        Self {
            first: Some(first),
            second: Some(second),
        }
    }
}

impl<A, B> KeyPair<A, B> {
    pub(super) const fn as_refs(&self) -> (Option<&A>, Option<&B>) {
        (self.first.as_ref(), self.second.as_ref())
    }
}

impl<A: Key, B: Key> Key for KeyPair<A, B> {}

impl<Req, A: KeyExtractor<Req>, B: KeyExtractor<Req>> KeyExtractor<Req> for AndKeys<A, B> {
    type Key = KeyPair<A::Key, B::Key>;

    fn extract(&self, request: &Req) -> Extracted<Self::Key> {
        let first = match self.first.extract(request) {
            Extracted::Key(key) => Some(key),
            Extracted::Skip => None,
            Extracted::Reject(rejection) => return Extracted::Reject(rejection),
        };
        let second = match self.second.extract(request) {
            Extracted::Key(key) => Some(key),
            Extracted::Skip if first.is_none() => return Extracted::Skip,
            Extracted::Skip => None,
            Extracted::Reject(rejection) => return Extracted::Reject(rejection),
        };
        Extracted::Key(KeyPair { first, second })
    }

    fn cost(&self, request: &Req) -> u64 {
        joint_cost(self.first.cost(request), self.second.cost(request))
    }

    fn priority(&self, request: &Req) -> Priority {
        self.first
            .priority(request)
            .min(self.second.priority(request))
    }

    fn unread_proxy_header(&self, request: &Req) -> bool {
        self.first.unread_proxy_header(request) || self.second.unread_proxy_header(request)
    }
}

impl<MA, MB, A: KeyType<MA>, B: KeyType<MB>> KeyType<(MA, MB)> for AndKeys<A, B> {
    type Key = KeyPair<A::Key, B::Key>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::laws::{Loud, Quiet, violations};

    #[test]
    fn what_either_extractor_says_arrives() {
        for key in [Extracted::Key(1), Extracted::Skip] {
            let loud = Loud::with(key);
            let pairs = [
                violations(&AndKeys::new(loud.clone(), Quiet)),
                violations(&AndKeys::new(Quiet, loud)),
            ];
            assert_eq!(pairs, [const { Vec::<String>::new() }; 2]);
        }
    }
}
