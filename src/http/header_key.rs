//! Keys that stand in the request: a header, a bearer token, an extension.

use std::{any::type_name, fmt, hash::Hash, hash::Hasher, marker::PhantomData};

use http::{HeaderName, HeaderValue, Request, header::AUTHORIZATION};

use super::missing::Missing;
use crate::key::Extracted;
use crate::key::Key;
use crate::key::KeyExtractor;

/// Counts by the value of a header, such as an API key.
///
/// A client chooses what it sends: count by a header only once something before has checked it, or
/// each request comes with a new value. Requests without the header are counted together, unless
/// [`if_missing`](Self::if_missing) says otherwise, and so are those that hold it twice.
///
/// ```
/// use tower_throttle::{Extracted, HeaderKey, KeyExtractor};
///
/// let request = http::Request::builder().header("x-api-key", "secret").body(()).unwrap();
/// let Extracted::Key(key) = HeaderKey::new("x-api-key").extract(&request) else { unreachable!() };
/// assert_eq!(format!("{key:?}"), "Secret(..)", "keys do not get into logs");
/// ```
#[derive(Clone, Debug)]
pub struct HeaderKey {
    name: HeaderName,
    missing: Missing,
}

impl HeaderKey {
    /// Counts by the header called `name`.
    ///
    /// # Panics
    /// If `name` is not the name of a header in lower case.
    #[track_caller]
    pub fn new(name: &'static str) -> Self {
        Self {
            name: HeaderName::from_static(name),
            missing: Missing::Shared,
        }
    }

    /// What becomes of requests that do not have the header, or have it twice.
    #[must_use]
    pub const fn if_missing(mut self, missing: Missing) -> Self {
        self.missing = missing;
        self
    }
}

impl<B> KeyExtractor<Request<B>> for HeaderKey {
    type Key = Secret;

    fn extract(&self, request: &Request<B>) -> Extracted<Secret> {
        let found = only(request, &self.name).cloned();
        self.missing
            .or(found.map(Secret), Secret::NONE, "a header is missing")
    }
}

/// Counts by the bearer token in `Authorization`.
///
/// Put it behind the layer that checks tokens: one that nobody has checked is whatever the client
/// likes, and a new one for each request. No cookies are read.
///
/// ```
/// use http::StatusCode;
/// use tower_throttle::{BearerToken, Extracted, KeyExtractor, Missing};
///
/// let tokens = BearerToken::new().if_missing(Missing::Reject(StatusCode::UNAUTHORIZED));
/// let request = http::Request::builder().header("authorization", "Bearer abc").body(()).unwrap();
/// assert!(matches!(tokens.extract(&request), Extracted::Key(_)));
/// assert!(matches!(tokens.extract(&http::Request::new(())), Extracted::Reject(_)));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct BearerToken {
    missing: Missing,
}

impl BearerToken {
    /// Counts by the token.
    pub const fn new() -> Self {
        Self {
            missing: Missing::Shared,
        }
    }

    /// What becomes of requests without a token.
    #[must_use]
    pub const fn if_missing(mut self, missing: Missing) -> Self {
        self.missing = missing;
        self
    }
}

impl<B> KeyExtractor<Request<B>> for BearerToken {
    type Key = Secret;

    fn extract(&self, request: &Request<B>) -> Extracted<Secret> {
        let found = only(request, &AUTHORIZATION).and_then(|value| {
            let (scheme, token) = value.as_bytes().split_at_checked(7)?;
            let token = token.trim_ascii();
            let bearer = scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty();
            // Whole, and not the token alone: that would be a copy.
            bearer.then(|| Secret(value.clone()))
        });
        self.missing
            .or(found, Secret::NONE, "a bearer token is missing")
    }
}

/// The value of the header, if there is just one.
fn only<'a, B>(request: &'a Request<B>, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut lines = request.headers().get_all(name).iter();
    lines.next().filter(|_| lines.next().is_none())
}

/// A key that does not show itself.
#[derive(Clone)]
pub struct Secret(HeaderValue);

impl Secret {
    /// What requests without the header are counted by. No header has this value: the ends of a
    /// value that came over the wire are trimmed.
    const NONE: Self = Self(HeaderValue::from_static(" "));

    /// The key of requests with this value, to look at or reset it through a handle; for a bearer
    /// token that is `Bearer` and the token.
    pub const fn new(value: HeaderValue) -> Self {
        Self(value)
    }
}

impl Hash for Secret {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let value = self.0.as_bytes();
        // The scheme of a token is written in either case, and means the same.
        match value.split_at_checked(7) {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") => {
                b"bearer ".hash(state);
                token.trim_ascii().hash(state);
            }
            _ => value.hash(state),
        }
    }
}

impl Key for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Counts by a `T` among the request's extensions, where an outer layer has left it: the user that
/// authentication found, also if finding it took a query.
///
/// ```
/// use tower_throttle::{Extracted, FromExtension, Key, KeyExtractor};
///
/// #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
/// struct UserId(u64);
///
/// impl Key for UserId {}
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(UserId(7));
/// assert_eq!(FromExtension::<UserId>::new().extract(&request), Extracted::Key(Some(UserId(7)).into()));
/// ```
pub struct FromExtension<T> {
    missing: Missing,
    of: PhantomData<fn() -> T>,
}

impl<T> FromExtension<T> {
    /// Counts by the extension.
    pub const fn new() -> Self {
        Self {
            missing: Missing::Shared,
            of: PhantomData,
        }
    }

    /// What becomes of requests without it.
    #[must_use]
    pub const fn if_missing(mut self, missing: Missing) -> Self {
        self.missing = missing;
        self
    }
}

impl<T> Default for FromExtension<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// By hand: `T` itself is not in it.
impl<T> Clone for FromExtension<T> {
    fn clone(&self) -> Self {
        *self
    }
}

/// By hand: `T` itself is not in it.
impl<T> Copy for FromExtension<T> {}

/// By hand: `T` itself is not in it.
impl<T> fmt::Debug for FromExtension<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FromExtension<{}>", type_name::<T>())
    }
}

/// A `T`, or that there was none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extension<T>(Option<T>);

impl<T> From<Option<T>> for Extension<T> {
    fn from(found: Option<T>) -> Self {
        Self(found)
    }
}

impl<T: Key> Key for Extension<T> {}

impl<B, T> KeyExtractor<Request<B>> for FromExtension<T>
where
    T: Key + Clone + Send + Sync + 'static,
{
    type Key = Extension<T>;

    fn extract(&self, request: &Request<B>) -> Extracted<Extension<T>> {
        let found = request.extensions().get::<T>().cloned();
        self.missing.or(
            found.map(|key| Extension(Some(key))),
            Extension(None),
            "the sender of the request is not known",
        )
    }
}
