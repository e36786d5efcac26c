//! Port: whose request it is, and what it costs.

mod client_ip;
mod extension;
mod header;
#[cfg(feature = "axum")]
mod matched_path;
mod missing;

#[cfg(feature = "axum")]
pub use self::matched_path::{MatchedPath, Route};
pub use self::{
    client_ip::{Client, ClientIp, Forwarded, PeerAddr},
    extension::{ExtensionKey, FromExtension},
    header::{BearerToken, HeaderKey, Secret},
    missing::Missing,
};
pub use crate::error::Rejection;

use std::{
    borrow::Cow,
    hash::Hash,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    rc::Rc,
    sync::Arc,
};

/// What a limit is counted by: an address, a tenant, a tuple of them.
///
/// Strings, numbers, addresses and tuples are keys; a type of your own becomes one with a line:
///
/// ```
/// use tower_throttle::key::Key;
///
/// #[derive(Clone, Copy, PartialEq, Eq, Hash)]
/// struct Tenant(u32);
///
/// impl Key for Tenant {}
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a key that requests can be counted by",
    label = "not a key",
    note = "strings, integers, IP addresses and tuples of them are keys",
    note = "for a type of your own that is `Hash`, write `impl tower_throttle::key::Key for {Self} {{}}`"
)]
pub trait Key: Hash {}

/// Finds the key of a request, and its cost.
///
/// A closure `Fn(&Req) -> T` is one, where `T` is
/// - a [`Key`],
/// - an `Option` of a key: `None` means that this request is not limited, or
/// - a `Result` of either: the error, turned into a [`Rejection`], is what the sender is told.
///
/// ```
/// use http::{Request, StatusCode};
/// use tower_throttle::key::{Extracted, KeyExtractor};
///
/// let by_path_length = |request: &Request<()>| request.uri().path().len();
/// assert_eq!(by_path_length.extract(&Request::new(())), Extracted::Key(1));
///
/// let only_writers = |request: &Request<()>| (request.method() != "GET").then_some("writers");
/// assert_eq!(only_writers.extract(&Request::new(())), Extracted::Skip);
///
/// let tenant = |request: &Request<()>| match request.headers().get("tenant") {
///     Some(name) => Ok(name.clone()),
///     None => Err(StatusCode::BAD_REQUEST),
/// };
/// assert!(matches!(tenant.extract(&Request::new(())), Extracted::Reject(_)));
/// ```
///
/// A tuple of extractors finds a tuple of keys. An extractor that has something to set up is a type
/// of its own:
///
/// ```
/// use tower_throttle::key::{Extracted, KeyExtractor};
///
/// #[derive(Clone)]
/// struct Shard { count: u64 }
///
/// impl KeyExtractor<u64> for Shard {
///     type Key = u64;
///
///     fn extract(&self, request: &u64) -> Extracted<u64> {
///         Extracted::Key(request % self.count)
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not find a key in `{Req}`",
    label = "not a key extractor for this request type",
    note = "a key closure names the type of the request it is used with, as in `|req: &axum::extract::Request| ..`",
    note = "it returns a key, an `Option` of one (`None` is not limited), or a `Result` whose error turns into a `Rejection`"
)]
pub trait KeyExtractor<Req> {
    /// What requests are counted by.
    type Key: Key;

    /// The key of `request`.
    fn extract(&self, request: &Req) -> Extracted<Self::Key>;

    /// The cost of `request`.
    fn cost(&self, request: &Req) -> u64 {
        let _ = request;
        1
    }

    /// Whether `request` carries the client's address in a header that this extractor ignores.
    ///
    /// [`ClientIp::peer`] returns true for a request with `X-Forwarded-For` or `Forwarded`. The
    /// application is then probably behind a proxy, and all clients share the limit of the proxy.
    /// A layer calls this for a sample of its requests, to report the mistake.
    fn unread_proxy_header(&self, request: &Req) -> bool {
        let _ = request;
        false
    }
}

/// What was found in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extracted<K> {
    /// The request is counted by this key.
    Key(K),
    /// The request is not limited.
    Skip,
    /// The request is turned away.
    Reject(Rejection),
}

impl<K> Extracted<K> {
    /// The same with another key.
    pub fn map<T>(self, change: impl FnOnce(K) -> T) -> Extracted<T> {
        match self {
            Self::Key(key) => Extracted::Key(change(key)),
            Self::Skip => Extracted::Skip,
            Self::Reject(rejection) => Extracted::Reject(rejection),
        }
    }

    fn and<B>(self, other: impl FnOnce() -> Extracted<B>) -> Extracted<(K, B)> {
        match self {
            Self::Key(key) => other().map(|b| (key, b)),
            Self::Skip => Extracted::Skip,
            Self::Reject(rejection) => Extracted::Reject(rejection),
        }
    }
}

/// What a key closure may return.
#[diagnostic::on_unimplemented(
    message = "a key closure cannot return `{Self}`",
    label = "neither a key, nor an `Option` or `Result` of one",
    note = "strings, integers, IP addresses and tuples of them are keys",
    note = "for a type of your own that is `Hash`, write `impl tower_throttle::key::Key for .. {{}}`"
)]
pub trait IntoKey {
    /// The key in it.
    type Key: Key;

    /// Takes the key out.
    fn into_key(self) -> Extracted<Self::Key>;
}

impl<K: Key> IntoKey for K {
    type Key = K;

    fn into_key(self) -> Extracted<K> {
        Extracted::Key(self)
    }
}

impl<K: Key> IntoKey for Extracted<K> {
    type Key = K;

    fn into_key(self) -> Self {
        self
    }
}

impl<K: Key> IntoKey for Option<K> {
    type Key = K;

    fn into_key(self) -> Extracted<K> {
        match self {
            Some(key) => Extracted::Key(key),
            None => Extracted::Skip,
        }
    }
}

impl<T: IntoKey, E: Into<Rejection>> IntoKey for Result<T, E> {
    type Key = T::Key;

    fn into_key(self) -> Extracted<T::Key> {
        match self {
            Ok(found) => found.into_key(),
            Err(error) => Extracted::Reject(error.into()),
        }
    }
}

impl<Req, F, T> KeyExtractor<Req> for F
where
    F: Fn(&Req) -> T,
    T: IntoKey,
{
    type Key = T::Key;

    #[inline]
    fn extract(&self, request: &Req) -> Extracted<T::Key> {
        self(request).into_key()
    }
}

/// One key for all requests.
///
/// ```
/// use tower_throttle::{Global, key::{Extracted, KeyExtractor}};
///
/// assert_eq!(Global.extract(&"any request"), Extracted::Key(()));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Global;

impl<Req> KeyExtractor<Req> for Global {
    type Key = ();

    #[inline]
    fn extract(&self, _: &Req) -> Extracted<()> {
        Extracted::Key(())
    }
}

impl<Req, A, B> KeyExtractor<Req> for (A, B)
where
    A: KeyExtractor<Req>,
    B: KeyExtractor<Req>,
{
    type Key = (A::Key, B::Key);

    fn extract(&self, request: &Req) -> Extracted<Self::Key> {
        self.0.extract(request).and(|| self.1.extract(request))
    }

    fn unread_proxy_header(&self, request: &Req) -> bool {
        self.0.unread_proxy_header(request) || self.1.unread_proxy_header(request)
    }
}

impl<Req, A, B, C> KeyExtractor<Req> for (A, B, C)
where
    A: KeyExtractor<Req>,
    B: KeyExtractor<Req>,
    C: KeyExtractor<Req>,
{
    type Key = (A::Key, B::Key, C::Key);

    fn extract(&self, request: &Req) -> Extracted<Self::Key> {
        let first = self.0.extract(request).and(|| self.1.extract(request));
        first
            .and(|| self.2.extract(request))
            .map(|((a, b), c)| (a, b, c))
    }

    fn unread_proxy_header(&self, request: &Req) -> bool {
        self.0.unread_proxy_header(request)
            || self.1.unread_proxy_header(request)
            || self.2.unread_proxy_header(request)
    }
}

/// Answers yes or no about a request; closures `Fn(&Req) -> bool` do.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not answer yes or no about `{Req}`",
    note = "a closure names the type of the request it is used with, as in `|req: &axum::extract::Request| ..`, and returns `bool`"
)]
pub trait Predicate<Req> {
    /// Whether it holds for `request`.
    fn holds(&self, request: &Req) -> bool;
}

impl<Req, F: Fn(&Req) -> bool> Predicate<Req> for F {
    #[inline]
    fn holds(&self, request: &Req) -> bool {
        self(request)
    }
}

/// An extractor with a cost for each request; made by `RateLimitLayer::cost`.
#[derive(Clone, Copy, Debug)]
pub struct WithCost<K, F> {
    keys: K,
    cost: F,
}

impl<K, F> WithCost<K, F> {
    pub(crate) const fn new(keys: K, cost: F) -> Self {
        Self { keys, cost }
    }
}

impl<Req, K: KeyExtractor<Req>, F: Fn(&Req) -> u64> KeyExtractor<Req> for WithCost<K, F> {
    type Key = K::Key;

    #[inline]
    fn extract(&self, request: &Req) -> Extracted<K::Key> {
        self.keys.extract(request)
    }

    #[inline]
    fn cost(&self, request: &Req) -> u64 {
        (self.cost)(request)
    }

    fn unread_proxy_header(&self, request: &Req) -> bool {
        self.keys.unread_proxy_header(request)
    }
}

/// An extractor that leaves some requests alone; made by `RateLimitLayer::skip`.
#[derive(Clone, Copy, Debug)]
pub struct WithSkip<K, P> {
    keys: K,
    skipped: P,
}

impl<K, P> WithSkip<K, P> {
    pub(crate) const fn new(keys: K, skipped: P) -> Self {
        Self { keys, skipped }
    }
}

impl<Req, K: KeyExtractor<Req>, P: Predicate<Req>> KeyExtractor<Req> for WithSkip<K, P> {
    type Key = K::Key;

    #[inline]
    fn extract(&self, request: &Req) -> Extracted<K::Key> {
        if self.skipped.holds(request) {
            Extracted::Skip
        } else {
            self.keys.extract(request)
        }
    }

    #[inline]
    fn cost(&self, request: &Req) -> u64 {
        self.keys.cost(request)
    }

    fn unread_proxy_header(&self, request: &Req) -> bool {
        self.keys.unread_proxy_header(request)
    }
}

impl Key for () {}
impl Key for bool {}
impl Key for char {}
impl Key for str {}
impl Key for String {}
impl Key for u8 {}
impl Key for u16 {}
impl Key for u32 {}
impl Key for u64 {}
impl Key for u128 {}
impl Key for usize {}
impl Key for i8 {}
impl Key for i16 {}
impl Key for i32 {}
impl Key for i64 {}
impl Key for i128 {}
impl Key for isize {}
impl Key for IpAddr {}
impl Key for Ipv4Addr {}
impl Key for Ipv6Addr {}
impl Key for SocketAddr {}
impl Key for SocketAddrV4 {}
impl Key for SocketAddrV6 {}
impl Key for http::HeaderValue {}
impl Key for http::Method {}
impl Key for http::Uri {}
impl Key for http::uri::Authority {}
impl<K: Key> Key for [K] {}
impl<K: Key, const N: usize> Key for [K; N] {}
impl<K: Key> Key for Vec<K> {}
impl<K: Key + ?Sized> Key for &K {}
impl<K: Key + ?Sized> Key for Box<K> {}
impl<K: Key + ?Sized> Key for Rc<K> {}
impl<K: Key + ?Sized> Key for Arc<K> {}
impl<K: Key + ToOwned + ?Sized> Key for Cow<'_, K> {}
impl<A: Key, B: Key> Key for (A, B) {}
impl<A: Key, B: Key, C: Key> Key for (A, B, C) {}
impl<A: Key, B: Key, C: Key, D: Key> Key for (A, B, C, D) {}
