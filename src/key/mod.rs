//! The key that a request is counted by, and the cost of the request.
//!
//! **A request without a key**: what a *client* can leave out never makes a request unlimited (all without it
//! share one limit), what the *operator* forgot is an error that names the remedy, and what the *program*
//! wants free it says by name ([`Extracted::Skip`]); `if_missing` changes each.
//!
//! | the request has no | so |
//! |---|---|
//! | header, token or route; a closure returns `None` | it shares one limit with all such requests |
//! | address, or extension of [`FromExtension`] | it is rejected with status 500, and the text says what to add |
//! | key of the first extractor of an [`Or`] | it is counted by the second one |
//! | address, and the layer has a list of networks ([`Within`]) | it is rejected as without a key |

mod client_ip;
mod closure;
mod extension;
mod header;
mod key_type;
mod lists;
#[cfg(feature = "axum")]
mod matched_path;
mod missing;
mod or;
mod provided;
#[cfg(test)]
pub(crate) mod tests;
mod tuples;
mod wrappers;

#[cfg(feature = "axum")]
pub use self::matched_path::{MatchedPath, Route};
#[cfg(feature = "policies")]
pub(crate) use self::missing::{Absent, resolve};
pub(crate) use self::{client_ip::BEFORE_V4, wrappers::Predicate};
pub use self::{
    client_ip::{Client, ClientIp, Forwarded, PeerAddr},
    closure::IntoKey,
    extension::FromExtension,
    header::{HeaderKey, Secret},
    key_type::{KeyRef, KeyType},
    lists::{Networks, Watched, Within},
    missing::Missing,
    or::{Either, Or},
    wrappers::{Costs, Filter, Priorities, With},
};
pub use crate::error::Rejection;

use std::hash::Hash;

/// A value that requests are counted by: an address, a tenant, a tuple of them.
///
/// Strings, integers, addresses and tuples are keys. References are not, because a key outlives its
/// request. For a constant, use `Cow::Borrowed("name")`, or `()` if there is only one. A type of your
/// own becomes a key with one line:
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
    message = "`{Self}` is not a key: a key is an owned value such as a `String`, an integer or an IP address, and a key closure is not async",
    label = "not a key",
    note = "a reference is not a key: return an owned value, with `.to_owned()` or `.clone()`",
    note = "for a type of your own that is `Hash` and `Clone`, write `impl tower_throttle::key::Key for {Self} {{}}`"
)]
pub trait Key: Hash {}

/// Finds the key of a request and its cost.
///
/// A closure `Fn(&Req) -> T` is a key extractor if `T` is one of these:
/// - a [`Key`]; an `Option` of one is a key too, so all requests with `None` share one limit,
/// - [`Extracted`], which says by name that a request is not limited,
/// - a `Result` of either; a request with an error is rejected, and the error becomes a
///   [`Rejection`].
///
/// ```
/// use http::{Request, StatusCode};
/// use tower_throttle::key::{Extracted, KeyExtractor};
///
/// let by_path_length = |request: &Request<()>| request.uri().path().len();
/// assert_eq!(by_path_length.extract(&Request::new(())), Extracted::Key(1));
///
/// let only_writers = |request: &Request<()>| match request.method().as_str() {
///     "GET" => Extracted::Skip,
///     _ => Extracted::Key(()),
/// };
/// assert_eq!(only_writers.extract(&Request::new(())), Extracted::Skip);
///
/// let by_tenant = |request: &Request<()>| request.headers().get("tenant").cloned();
/// assert_eq!(by_tenant.extract(&Request::new(())), Extracted::Key(None));
///
/// let tenant = |request: &Request<()>| match request.headers().get("tenant") {
///     Some(name) => Ok(name.clone()),
///     None => Err(StatusCode::BAD_REQUEST),
/// };
/// assert!(matches!(tenant.extract(&Request::new(())), Extracted::Reject(_)));
/// ```
///
/// A tuple of extractors finds a tuple of keys. The largest cost of its parts counts, and the lowest
/// priority. An extractor with configuration is a type of its own:
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
    message = "`{Self}` is not a key extractor for `{Req}`",
    label = "a closure names the type of its request: `|req: &axum::extract::Request| ..`; for a header, say which proxies are trusted: `.trusting([..])` or `.hops(n)`",
    note = "a closure returns a key (all requests with `None` share one), an `Extracted`, or a `Result` whose error converts into a `Rejection`"
)]
pub trait KeyExtractor<Req> {
    /// The type of the keys. The line of a key has one of its own.
    type Key: Key + Clone + Send + 'static;

    /// The key of `request`.
    fn extract(&self, request: &Req) -> Extracted<Self::Key>;

    /// What `request` costs, and how important it is.
    fn weigh(&self, request: &Req) -> Weight {
        let _ = request;
        Weight::default()
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

/// What a request costs, and how important it is; see [`LimitLayer::cost`](crate::layer::LimitLayer::cost) and
/// [`LimitLayer::priority`](crate::layer::LimitLayer::priority).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Weight {
    /// What it takes of the limit.
    pub cost: u64,
    /// How important it is: those with the lowest number wait longest.
    pub priority: u8,
}

/// A cost of 1, and the highest priority.
impl Default for Weight {
    fn default() -> Self {
        let (cost, priority) = (1, u8::MAX);
        Self { cost, priority }
    }
}

impl Weight {
    /// By two extractors: the larger cost and the lower priority. 1 is what an extractor says that knows nothing of
    /// costs, so the 0 of the other one counts.
    pub(crate) fn and(self, other: Self) -> Self {
        let cost = match (self.cost, other.cost) {
            (1, other) | (other, 1) => other,
            (first, second) => first.max(second),
        };
        let priority = self.priority.min(other.priority);
        Self { cost, priority }
    }
}

/// The result of looking for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extracted<K> {
    /// The request is counted by this key.
    Key(K),
    /// The request is not limited.
    Skip,
    /// The request is rejected.
    Reject(Rejection),
}

impl<K> Extracted<K> {
    /// `key`, or a request that is not limited: for a closure by which requests without a key are free.
    ///
    /// ```
    /// use http::Request;
    /// use tower_throttle::key::{Extracted, KeyExtractor};
    ///
    /// let by_tenant = |request: &Request<()>| Extracted::or_skip(request.headers().get("tenant").cloned());
    /// assert_eq!(by_tenant.extract(&Request::new(())), Extracted::Skip);
    /// ```
    pub fn or_skip(key: Option<K>) -> Self {
        key.map_or(Self::Skip, Self::Key)
    }

    /// Converts the key, if there is one.
    pub(crate) fn map<T>(self, change: impl FnOnce(K) -> T) -> Extracted<T> {
        match self {
            Self::Key(key) => Extracted::Key(change(key)),
            Self::Skip => Extracted::Skip,
            Self::Reject(rejection) => Extracted::Reject(rejection),
        }
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
