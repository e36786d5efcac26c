//! Keys that stand in the request: a header, a bearer token, an extension.

use std::{
    fmt,
    hash::{Hash, Hasher},
};

use http::{HeaderName, HeaderValue, Request, header::AUTHORIZATION};

use super::missing::Missing;
use crate::key::{Extracted, Key, KeyExtractor};

/// Counts by the value of a header, such as an API key.
///
/// A client chooses what it sends: count by a header only once something before has checked it, or
/// each request comes with a new value. Requests without the header are counted together, unless
/// [`if_missing`](Self::if_missing) says otherwise, and so are those that hold it twice.
///
/// ```
/// use tower_throttle::{HeaderKey, key::{Extracted, KeyExtractor}};
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
            .or(found.map(Secret), Secret::MISSING, "a header is missing")
    }
}

/// Counts by the bearer token in `Authorization`.
///
/// Put it behind the layer that checks tokens: one that nobody has checked is whatever the client
/// likes, and a new one for each request. No cookies are read.
///
/// ```
/// use http::StatusCode;
/// use tower_throttle::key::{BearerToken, Extracted, KeyExtractor, Missing};
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
            .or(found, Secret::MISSING, "a bearer token is missing")
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
    const MISSING: Self = Self(HeaderValue::from_static(" "));

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
