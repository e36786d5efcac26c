//! How many requests were admitted, denied, and so on.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::respond::Event;
use crate::sync::CachePadded;

/// How many requests had each outcome since the layer was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Went on at once.
    pub admitted: u64,
    /// Had to wait for their turn. Of several limits in one layer, each counts that for itself.
    pub waited: u64,
    /// Denied by a limit.
    pub denied: u64,
    /// Had no key and were rejected.
    pub rejected: u64,
    /// Passed at once because of [`shadow`](crate::RateLimitLayer::shadow), and would have waited.
    pub shadow_waited: u64,
    /// Passed because of shadow mode, and would have been denied.
    pub shadow_denied: u64,
    /// Passed because of shadow mode, and would have been rejected.
    pub shadow_rejected: u64,
    /// Were not limited.
    pub skipped: u64,
    /// The backend could not decide about them.
    pub store_errors: u64,
    /// Carried the client's address in a header that the key extractor ignores, such as
    /// `X-Forwarded-For` with [`ClientIp::peer`](crate::ClientIp::peer). If this is not 0, the
    /// application is probably behind a proxy whose clients all share one limit: use
    /// [`ClientIp::x_forwarded_for`](crate::ClientIp::x_forwarded_for).
    ///
    /// Only a sample is looked at: requests up to the 16th admitted one, then about every 1,024th.
    pub unread_proxy_headers: u64,
}

/// A counter per outcome. Not in the cache lines of what requests only read.
#[derive(Debug, Default)]
pub(crate) struct Counters(CachePadded<[AtomicU64; 10]>);

impl Counters {
    #[inline]
    pub(crate) fn count(&self, outcome: Outcome) {
        self.0.0[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn admitted(&self) -> u64 {
        self.0.0[Outcome::Admitted as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn read(&self) -> Counts {
        let of = |outcome: Outcome| self.0.0[outcome as usize].load(Ordering::Relaxed);
        Counts {
            admitted: of(Outcome::Admitted),
            waited: of(Outcome::Waited),
            denied: of(Outcome::Denied),
            rejected: of(Outcome::Rejected),
            shadow_waited: of(Outcome::ShadowWaited),
            shadow_denied: of(Outcome::ShadowDenied),
            shadow_rejected: of(Outcome::ShadowRejected),
            skipped: of(Outcome::Skipped),
            store_errors: of(Outcome::StoreError),
            unread_proxy_headers: of(Outcome::UnreadProxyHeader),
        }
    }
}

/// What becomes of a request, in the order of the counters.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    Admitted,
    Waited,
    Denied,
    Rejected,
    ShadowWaited,
    ShadowDenied,
    ShadowRejected,
    Skipped,
    StoreError,
    UnreadProxyHeader,
}

impl Outcome {
    #[inline]
    pub(crate) const fn of(event: Event<'_>, shadow: bool) -> Self {
        match (event, shadow) {
            (Event::Admitted, _) => Self::Admitted,
            (Event::Waits(..), false) => Self::Waited,
            (Event::Waits(..), true) => Self::ShadowWaited,
            (Event::Denied(_), false) => Self::Denied,
            (Event::Denied(_), true) => Self::ShadowDenied,
            (Event::Rejected(_), false) => Self::Rejected,
            (Event::Rejected(_), true) => Self::ShadowRejected,
            (Event::Skipped, _) => Self::Skipped,
            (Event::StoreError(_), _) => Self::StoreError,
            (Event::UnreadProxyHeader, _) => Self::UnreadProxyHeader,
        }
    }
}
