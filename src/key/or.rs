//! One key, else another one.

use crate::key::{Extracted, Key, KeyExtractor, Weight};

/// An extractor that may find no key, so that another one is asked instead.
///
/// Implement it for an extractor of your own to use it as the first part of an [`Or`].
pub(crate) trait FindKey<Req>: KeyExtractor<Req> {
    /// The key of `request`, if it has one.
    fn find(&self, request: &Req) -> Option<Self::Key>;
}

/// The key of the first extractor, or of the second one if the first finds none.
///
/// Made by the method `or` of the provided extractors, such as [`HeaderKey::or`](crate::HeaderKey::or).
/// The two kinds of keys never share a limit: a client cannot use up the limit of an address by
/// sending the address as an API key.
///
/// ```
/// use tower_throttle::{ClientIp, HeaderKey, key::{Either, Extracted, KeyExtractor, PeerAddr}};
///
/// let keys = HeaderKey::new("X-Api-Key").or(HeaderKey::bearer()).or(ClientIp::peer());
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(PeerAddr("192.0.2.7:4711".parse().unwrap()));
/// let Extracted::Key(Either::Right(client)) = keys.extract(&request) else { unreachable!() };
/// assert_eq!(client.to_string(), "192.0.2.7");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Or<A, B> {
    first: A,
    second: B,
}

impl<A, B> Or<A, B> {
    /// Asks `first`, and `second` if it finds no key.
    pub(super) const fn new(first: A, second: B) -> Self {
        Self { first, second }
    }

    /// Asks `third` if neither of the two finds a key.
    pub const fn or<C>(self, third: C) -> Or<Self, C> {
        Or::new(self, third)
    }
}

impl<Req, A: FindKey<Req>, B: KeyExtractor<Req>> KeyExtractor<Req> for Or<A, B> {
    type Key = Either<A::Key, B::Key>;

    fn extract(&self, request: &Req) -> Extracted<Self::Key> {
        match self.first.find(request) {
            Some(key) => Extracted::Key(Either::Left(key)),
            None => self.second.extract(request).map(Either::Right),
        }
    }

    fn weigh(&self, request: &Req) -> Weight {
        match self.first.find(request) {
            Some(_) => self.first.weigh(request),
            None => self.second.weigh(request),
        }
    }

    fn unread_proxy_header(&self, request: &Req) -> bool {
        match self.first.find(request) {
            Some(_) => self.first.unread_proxy_header(request),
            None => self.second.unread_proxy_header(request),
        }
    }
}

impl<Req, A: FindKey<Req>, B: FindKey<Req>> FindKey<Req> for Or<A, B> {
    fn find(&self, request: &Req) -> Option<Self::Key> {
        let first = self.first.find(request).map(Either::Left);
        first.or_else(|| self.second.find(request).map(Either::Right))
    }
}

/// The key of one of two extractors; see [`Or`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Either<A, B> {
    /// The key of the first extractor.
    Left(A),
    /// The key of the second extractor.
    Right(B),
}

impl<A: Key, B: Key> Key for Either<A, B> {}
