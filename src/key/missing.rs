//! Requests without a key.

use std::fmt;

use http::{HeaderName, StatusCode};

use crate::error::Rejection;
use crate::key::Extracted;

/// What happens to a request that has no key.
///
/// ```
/// use http::StatusCode;
/// use tower_throttle::{ClientIp, HeaderKey, key::Missing};
///
/// let shared = ClientIp::peer().if_missing(Missing::Shared);
/// let only_with_key = HeaderKey::new("x-api-key").if_missing(Missing::Reject(StatusCode::UNAUTHORIZED));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Missing {
    /// All such requests share one limit, as if one client sent them.
    Shared,
    /// The request is rejected with this status.
    Reject(StatusCode),
    /// The request is not limited. If clients can omit the key, limit such requests in another
    /// way.
    Skip,
}

/// The thing that a request lacks.
pub(super) enum Absent<'a> {
    Address,
    Header(&'a HeaderName),
    Token,
    Extension,
    #[cfg(feature = "axum")]
    Route,
}

/// The text of the rejection.
impl fmt::Display for Absent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => f.write_str("the address of the client is not known"),
            Self::Header(name) => write!(f, "the header {name} is missing or repeated"),
            Self::Token => f.write_str("the bearer token is missing"),
            Self::Extension => f.write_str("the sender of the request is not known"),
            #[cfg(feature = "axum")]
            Self::Route => f.write_str("the request matched no route"),
        }
    }
}

/// The text for a server that does not pass on peer addresses. It names the remedy, because the
/// first request to such a server is usually sent by the developer.
const NO_PEER_ADDRESS: &str = "tower-throttle: the server does not pass on the address of the client. \
     axum: enable the feature `axum` of tower-throttle and serve \
     `app.into_make_service_with_connect_info::<SocketAddr>()`. \
     tonic: enable the feature `tonic`. \
     Other servers: insert a `tower_throttle::key::PeerAddr` into the extensions of each request. \
     To let all such requests share one limit, add `.if_missing(Missing::Shared)`. \
     See https://docs.rs/tower-throttle/latest/tower_throttle/guide/proxies/index.html#no-address";

/// The key, or what happens to the request without it. `missing` is `None` if the user did not set
/// it.
#[inline]
pub(super) fn resolve<K>(
    found: Option<K>,
    missing: Option<Missing>,
    shared: K,
    absent: &Absent<'_>,
) -> Extracted<K> {
    match (found, missing) {
        (Some(key), _) => Extracted::Key(key),
        (None, Some(Missing::Shared)) => Extracted::Key(shared),
        (None, Some(Missing::Skip)) => Extracted::Skip,
        (None, Some(Missing::Reject(status))) => {
            Extracted::Reject(Rejection::new(status, absent.to_string()))
        }
        (None, None) => {
            if let Absent::Address = absent {
                Extracted::Reject(Rejection::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    NO_PEER_ADDRESS,
                ))
            } else {
                warn_once(absent);
                Extracted::Key(shared)
            }
        }
    }
}

/// Refuses `if_missing` on an extractor that is followed by another one.
#[track_caller]
pub(super) const fn assert_unset(missing: Option<Missing>) {
    assert!(
        missing.is_none(),
        "if_missing: has no effect before `.or(..)`; set it on the last extractor"
    );
}

/// Logs once per kind of key that requests without it share one limit.
#[cfg(feature = "tracing")]
#[cold]
fn warn_once(absent: &Absent<'_>) {
    use std::sync::atomic::{AtomicU8, Ordering};

    /// One bit per kind.
    static LOGGED: AtomicU8 = AtomicU8::new(0);

    let bit = match absent {
        Absent::Address => 1,
        Absent::Header(_) => 2,
        Absent::Token => 4,
        Absent::Extension => 8,
        #[cfg(feature = "axum")]
        Absent::Route => 16,
    };
    // The load keeps requests from writing to a shared cache line.
    if LOGGED.load(Ordering::Relaxed) & bit == 0
        && LOGGED.fetch_or(bit, Ordering::Relaxed) & bit == 0
    {
        tracing::warn!(
            target: "tower_throttle",
            "{absent}: such requests share one limit; set `if_missing` to choose (logged once). See \
             https://docs.rs/tower-throttle/latest/tower_throttle/guide/proxies/index.html#a-key-that-is-missing"
        );
    }
}

#[cfg(not(feature = "tracing"))]
const fn warn_once(_: &Absent<'_>) {}
