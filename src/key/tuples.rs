//! Tuples of extractors.

use crate::key::{Extracted, KeyExtractor, Weight};

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

    fn weigh(&self, request: &Req) -> Weight {
        self.0.weigh(request).and(self.1.weigh(request))
    }

    fn unread_proxy_header(&self, request: &Req) -> bool {
        self.0.unread_proxy_header(request) || self.1.unread_proxy_header(request)
    }
}
