//! Tuples of extractors.

use crate::key::{Extracted, KeyExtractor, Priority, joint_cost};

/// Both keys. Rejects or skips a request if one of the extractors does.
fn zip<A, B>(first: Extracted<A>, second: impl FnOnce() -> Extracted<B>) -> Extracted<(A, B)> {
    match first {
        Extracted::Key(a) => second().map(|b| (a, b)),
        Extracted::Skip => Extracted::Skip,
        Extracted::Reject(rejection) => Extracted::Reject(rejection),
    }
}

impl<Req, A, B> KeyExtractor<Req> for (A, B)
where
    A: KeyExtractor<Req>,
    B: KeyExtractor<Req>,
{
    type Key = (A::Key, B::Key);

    fn extract(&self, request: &Req) -> Extracted<Self::Key> {
        zip(self.0.extract(request), || self.1.extract(request))
    }

    fn cost(&self, request: &Req) -> u64 {
        joint_cost(self.0.cost(request), self.1.cost(request))
    }

    fn priority(&self, request: &Req) -> Priority {
        self.0.priority(request).min(self.1.priority(request))
    }

    fn unread_proxy_header(&self, request: &Req) -> bool {
        self.0.unread_proxy_header(request) || self.1.unread_proxy_header(request)
    }
}
