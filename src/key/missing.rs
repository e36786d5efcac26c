//! What becomes of requests that do not have what they are counted by.

use http::StatusCode;

use crate::error::Rejection;
use crate::key::Extracted;

/// What becomes of requests that do not have what they are counted by.
///
/// ```
/// use http::StatusCode;
/// use tower_throttle::{ClientIp, HeaderKey, key::Missing};
///
/// let strict = ClientIp::peer().if_missing(Missing::Reject(StatusCode::FORBIDDEN));
/// let only_with_key = HeaderKey::new("x-api-key").if_missing(Missing::Skip);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Missing {
    /// They are counted together, as if they came from one client.
    #[default]
    Shared,
    /// They are turned away with this status.
    Reject(StatusCode),
    /// They are not limited. Whoever can leave the thing out then is without a limit: make sure
    /// that another one counts them.
    Skip,
}

impl Missing {
    /// `found`, or what becomes of a request without `what`.
    #[inline]
    pub(super) fn or<K>(self, found: Option<K>, shared: K, what: &'static str) -> Extracted<K> {
        match (found, self) {
            (Some(key), _) => Extracted::Key(key),
            (None, Self::Shared) => {
                report(what);
                Extracted::Key(shared)
            }
            (None, Self::Reject(status)) => Extracted::Reject(Rejection::new(status, what)),
            (None, Self::Skip) => Extracted::Skip,
        }
    }
}

/// Says once that requests without a key are counted together: when the connection's address was
/// forgotten in the setup of the server, that is all of them.
#[cfg(feature = "tracing")]
#[cold]
fn report(what: &'static str) {
    use std::sync::Once;

    static FIRST: Once = Once::new();
    FIRST.call_once(|| {
        tracing::warn!(
            target: "tower_throttle",
            "{what}: such requests are counted together; this is said once"
        );
    });
}

#[cfg(not(feature = "tracing"))]
const fn report(_: &'static str) {}
