//! Keys in request headers: an API key or a bearer token.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::atomic::AtomicBool,
};

use http::{HeaderName, HeaderValue, Request, header::AUTHORIZATION};

use super::missing::{Absent, Missing, assert_unset, resolve};
use super::or::{FindKey, Or};
use crate::error::ConfigError;
use crate::key::{Extracted, Key, KeyExtractor};

/// Counts by the value of a header, such as an API key.
///
/// Clients choose what they send. Check the header in an outer layer first, or a client sends a new
/// value with each request and is never limited. Requests without the header, or with two of it,
/// share one limit unless [`if_missing`](Self::if_missing) or [`or`](Self::or) is set.
///
/// ```
/// use tower_throttle::{HeaderKey, key::{Extracted, KeyExtractor}};
///
/// let request = http::Request::builder().header("x-api-key", "secret").body(()).unwrap();
/// let Extracted::Key(key) = HeaderKey::new("X-Api-Key").extract(&request) else { unreachable!() };
/// assert_eq!(format!("{key:?}"), "Secret(..)", "keys are not logged");
/// ```
#[derive(Clone, Debug)]
pub struct HeaderKey {
    name: HeaderName,
    /// If only the token of `Bearer TOKEN` is the key.
    is_bearer: bool,
    missing: Option<Missing>,
}

impl HeaderKey {
    /// Counts by the header `name`, in any case.
    ///
    /// # Panics
    /// If `name` is not the name of a header.
    #[track_caller]
    pub fn new(name: &str) -> Self {
        Self {
            name: header_name("HeaderKey::new", name),
            is_bearer: false,
            missing: None,
        }
    }

    /// Counts by the bearer token in `Authorization`. Cookies are not read.
    ///
    /// ```
    /// use http::StatusCode;
    /// use tower_throttle::{HeaderKey, key::{Extracted, KeyExtractor, Missing}};
    ///
    /// let tokens = HeaderKey::bearer().if_missing(Missing::Reject(StatusCode::UNAUTHORIZED));
    /// let request = http::Request::builder().header("authorization", "Bearer abc").body(()).unwrap();
    /// assert!(matches!(tokens.extract(&request), Extracted::Key(_)));
    /// assert!(matches!(tokens.extract(&http::Request::new(())), Extracted::Reject(_)));
    /// ```
    pub const fn bearer() -> Self {
        Self {
            name: AUTHORIZATION,
            is_bearer: true,
            missing: None,
        }
    }

    /// What happens to requests without the header, or with two of it, or without a bearer token in it.
    #[must_use]
    pub const fn if_missing(mut self, missing: Missing) -> Self {
        self.missing = Some(missing);
        self
    }

    /// Counts a request without the header, or with two of it, by `other`.
    ///
    /// A client that leaves the header out, or sends it twice, is limited by `other`. Two layers,
    /// each of which skips requests without its key, would let it pass. One that invents a value per
    /// request is not limited, unless the header was checked before: count what the check has found, by
    /// [`FromExtension::or`](crate::key::FromExtension::or).
    ///
    /// ```
    /// use tower_throttle::{ClientIp, HeaderKey, Quota, RateLimitLayer, TokenBucket};
    ///
    /// let keys = HeaderKey::new("x-api-key").or(ClientIp::peer());
    /// let layer = RateLimitLayer::new(keys, TokenBucket::new(Quota::per_second(10)));
    /// # let _: axum::Router = axum::Router::new().layer(layer);
    /// ```
    ///
    /// # Panics
    /// If [`if_missing`](Self::if_missing) is set.
    #[track_caller]
    pub const fn or<B>(self, other: B) -> Or<Self, B> {
        assert_unset(self.missing);
        Or::new(self, other)
    }

    /// The key of requests with this value, for a [`Handle`](crate::Handle). A token is given without `Bearer`.
    ///
    /// ```
    /// use tower_throttle::{HeaderKey, Quota, RateLimitLayer, TokenBucket};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let limit = TokenBucket::new(Quota::per_second(10));
    /// let layer = RateLimitLayer::new(HeaderKey::new("x-api-key"), limit);
    /// let decision = layer.handle().peek(&HeaderKey::key("secret"), 1).await.unwrap();
    /// assert_eq!(decision.remaining(), 10);
    /// # }
    /// ```
    pub fn key(value: impl AsRef<[u8]>) -> Secret {
        Secret(SecretValue::Given(value.as_ref().into()))
    }
}

impl<B> FindKey<Request<B>> for HeaderKey {
    fn find(&self, request: &Request<B>) -> Option<Secret> {
        let value = single_header(request, &self.name)?;
        if !self.is_bearer {
            return Some(Secret(SecretValue::Header(value.clone())));
        }
        bearer_token(value.as_bytes())?;
        // The whole value: the token alone would be a copy.
        Some(Secret(SecretValue::Authorization(value.clone())))
    }
}

impl<B> KeyExtractor<Request<B>> for HeaderKey {
    type Key = Secret;

    fn extract(&self, request: &Request<B>) -> Extracted<Secret> {
        static LOGGED: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];

        let (of, name, more) = if self.is_bearer {
            ("bearer token", "", "")
        } else {
            ("header ", self.name.as_str(), " or repeated")
        };
        resolve(
            self.find(request),
            self.missing,
            Secret::MISSING,
            &Absent::ByClient(
                &format_args!("the {of}{name} is missing{more}"),
                &LOGGED[usize::from(self.is_bearer)],
            ),
        )
    }
}

/// The token in `Bearer token`. The scheme is written in any case.
fn bearer_token(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = authorization.split_at_checked(7)?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then_some(token)
}

/// The value of the header, if the request has exactly one.
fn single_header<'a, B>(request: &'a Request<B>, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = request.headers().get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

/// The header called `name`, in any case.
#[track_caller]
pub(super) fn header_name(field: &'static str, name: &str) -> HeaderName {
    let allowed = "the name of a header: letters, digits and any of !#$%&'*+-.^_`|~";
    // A closure would be the location of the panic.
    let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
        let value = format!("{name:?}");
        panic!("{}", ConfigError::out_of_range(field, value, allowed));
    };
    name
}

/// A key that is never logged, and never sent to a store in clear text.
///
/// [`HeaderKey::key`] makes one.
#[derive(Clone)]
pub struct Secret(SecretValue);

#[derive(Clone)]
enum SecretValue {
    /// The request has none.
    Missing,
    /// The value of a header.
    Header(HeaderValue),
    /// The value of an `Authorization` header with a bearer token.
    Authorization(HeaderValue),
    /// A value that the user gave.
    Given(Box<[u8]>),
}

impl Secret {
    /// The key of all requests without the header.
    pub(crate) const MISSING: Self = Self(SecretValue::Missing);

    /// The secret itself, or `None` for requests without one.
    ///
    /// ```
    /// use tower_throttle::HeaderKey;
    ///
    /// assert_eq!(HeaderKey::key("acme").value(), Some(&b"acme"[..]));
    /// ```
    pub fn value(&self) -> Option<&[u8]> {
        match &self.0 {
            SecretValue::Missing => None,
            SecretValue::Header(value) => Some(value.as_bytes()),
            SecretValue::Authorization(value) => bearer_token(value.as_bytes()),
            SecretValue::Given(value) => Some(value),
        }
    }
}

impl Hash for Secret {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.value().hash(state);
    }
}

impl Key for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}
