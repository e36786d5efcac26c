//! What others ask about the settings of an algorithm.

use std::time::Duration;

/// What limiters, queues and stores ask about the settings of an algorithm, in one value.
///
/// The default is right for an algorithm of your own: one limit, which may make a caller wait that reserves a
/// turn, and which runs on a copy of the state.
///
/// ```
/// use tower_throttle::algorithm::{Algorithm, Capabilities};
/// use tower_throttle::{FixedWindow, Quota, TokenBucket};
///
/// let both = (TokenBucket::new(Quota::per_second(10)), FixedWindow::new(Quota::per_day(1_000)));
/// let facts = both.capabilities();
/// assert_eq!((facts.limits, facts.waiting), (2, 1));
/// assert!(Capabilities::default().is_user_code);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// How many limits it holds, for [`Decision::policy`](crate::Decision::policy).
    pub limits: usize,
    /// How many of its limits can make a request wait that [reserves](super::Algorithm::reserve) a turn.
    pub waiting: usize,
    /// How many units of requests may wait for their turn; 0 if none.
    pub queue: u64,
    /// The longest wait of a queued request. One that would have to wait longer is denied on arrival, and one that others
    /// overtake until then leaves the queue.
    pub max_wait: Duration,
    /// Whether a denial changes the state of its key. Then it must be decided, and not only peeked at or
    /// repeated from a cache.
    pub counts_denials: bool,
    /// Whether each key needs a state of its own: a refund or a ban is about one key alone.
    pub is_about_one_key: bool,
    /// Whether the algorithm, or a part of it, is not one of this crate's. Then it runs on a copy of the
    /// state, and cannot use the table that calls it.
    pub is_user_code: bool,
    /// The most bytes that a state allocates, besides its own size.
    pub max_heap_bytes: usize,
}

impl Capabilities {
    /// No limit, to which others are added.
    pub(super) const NO_LIMIT: Self = Self {
        limits: 0,
        waiting: 0,
        queue: 0,
        max_wait: Duration::MAX,
        counts_denials: false,
        is_about_one_key: false,
        is_user_code: false,
        max_heap_bytes: 0,
    };

    /// A limit of this crate that needs nothing special.
    pub(super) const ONE_LIMIT: Self = Self {
        limits: 1,
        ..Self::NO_LIMIT
    };

    /// Those of two limits that decide together.
    #[inline]
    #[must_use]
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            limits: self.limits + other.limits,
            waiting: self.waiting + other.waiting,
            queue: self.queue.max(other.queue),
            max_wait: self.max_wait.min(other.max_wait),
            counts_denials: self.counts_denials | other.counts_denials,
            is_about_one_key: self.is_about_one_key | other.is_about_one_key,
            is_user_code: self.is_user_code | other.is_user_code,
            max_heap_bytes: self.max_heap_bytes.saturating_add(other.max_heap_bytes),
        }
    }
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            waiting: 1,
            is_user_code: true,
            ..Self::ONE_LIMIT
        }
    }
}
