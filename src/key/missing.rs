//! Requests without a key.

use std::{fmt, sync::atomic::AtomicBool};

use http::StatusCode;

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

/// Why a request has no key, which says what happens to it if the user has set nothing. The first text is
/// that of [`Missing::Reject`].
pub(crate) enum Absent<'a> {
    /// A client can leave it out: all such requests share one limit. Logged once per flag.
    ByClient(&'a dyn fmt::Display, &'static AtomicBool),
    /// The operator forgot something: an error with the second text, which names the remedy.
    ByOperator(&'a dyn fmt::Display, &'a dyn fmt::Display),
}

/// The key, or what happens to the request without it.
pub(crate) fn resolve<K>(
    found: Option<K>,
    missing: Option<Missing>,
    shared: K,
    absent: &Absent<'_>,
) -> Extracted<K> {
    let reject = |status, text: &dyn fmt::Display| {
        Extracted::Reject(Rejection::new(status, text.to_string()))
    };
    match (found, missing, absent) {
        (Some(key), ..) => Extracted::Key(key),
        (None, Some(Missing::Shared), _) => Extracted::Key(shared),
        (None, Some(Missing::Skip), _) => Extracted::Skip,
        (
            None,
            Some(Missing::Reject(status)),
            Absent::ByClient(text, _) | Absent::ByOperator(text, _),
        ) => reject(status, text),
        (None, None, Absent::ByOperator(_, remedy)) => {
            reject(StatusCode::INTERNAL_SERVER_ERROR, remedy)
        }
        (None, None, Absent::ByClient(text, logged)) => {
            warn_once(text, logged);
            Extracted::Key(shared)
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

#[cfg(feature = "tracing")]
#[cold]
fn warn_once(absent: &dyn fmt::Display, logged: &AtomicBool) {
    use std::sync::atomic::Ordering;

    // The load keeps requests from writing to a shared cache line.
    if !logged.load(Ordering::Relaxed) && !logged.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            target: "tower_throttle",
            "{absent}: such requests share one limit; set `if_missing` to choose (logged once). See \
             https://docs.rs/tower-throttle/latest/tower_throttle/guide/proxies/index.html#a-key-that-is-missing"
        );
    }
}

#[cfg(not(feature = "tracing"))]
const fn warn_once(_: &dyn fmt::Display, _: &AtomicBool) {}
