//! What limiters ask of an algorithm besides its decisions.

use std::time::Duration;

use super::Algorithm;
use crate::clock::Tick;
use crate::decision::Decision;
use crate::quota::Quota;

/// What limiters ask of an algorithm besides its decisions. An algorithm of your own takes the defaults:
/// `impl Words for Mine {}`.
#[diagnostic::on_unimplemented(
    message = "it is not known how to keep the states of `{Self}`",
    label = "write `impl Words for {Self} {{}}`"
)]
pub trait Words: Algorithm {
    /// The quotas of all its limits, in the order in which [`Decision::policy`] counts them.
    #[doc(hidden)]
    fn quotas(&self) -> Vec<Quota> {
        vec![self.quota()]
    }

    /// The decision that [`Algorithm::peek`] would return if there were only the limit with this number in
    /// [`Decision::policy`].
    #[doc(hidden)]
    fn peek_part(&self, state: &Self::State, now: Tick, cost: u64, part: usize) -> Decision {
        let _ = part;
        self.peek(state, now, cost)
    }

    /// The decision that [`Algorithm::reserve`] would return, taking nothing.
    #[doc(hidden)]
    #[inline]
    fn peek_reserve(
        &self,
        state: &Self::State,
        now: Tick,
        cost: u64,
        max_wait: Duration,
    ) -> Decision {
        self.reserve(&mut state.clone(), now, cost, max_wait)
    }

    /// Denies everything for `length` from now on, if the algorithm has bans.
    #[doc(hidden)]
    fn ban(&self, state: &mut Self::State, now: Tick, length: Duration) {
        let _ = (self, state, now, length);
    }

    /// What a state holds at `now`.
    ///
    /// ```
    /// use tower_throttle::algorithm::{Algorithm, Report, Words};
    /// use tower_throttle::{Quota, TokenBucket, clock::Tick};
    ///
    /// let bucket = TokenBucket::new(Quota::per_second(10));
    /// let report: Report = bucket.report(&bucket.fresh(Tick::ZERO), Tick::ZERO);
    /// assert_eq!((report.available, report.is_blocked, report.heap_bytes), (10, false, 0));
    /// ```
    #[inline]
    fn report(&self, state: &Self::State, now: Tick) -> Report {
        Report {
            available: self.peek(state, now, 0).remaining(),
            is_blocked: false,
            heap_bytes: 0,
        }
    }
}

/// What a state holds at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The largest cost that is admitted at once.
    pub available: u64,
    /// Whether a block or a ban holds.
    pub is_blocked: bool,
    /// The bytes that the state has allocated, besides its own size.
    pub heap_bytes: usize,
}

impl Report {
    /// That of two limits that decide together.
    #[must_use]
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            available: self.available.min(other.available),
            is_blocked: self.is_blocked | other.is_blocked,
            heap_bytes: self.heap_bytes + other.heap_bytes,
        }
    }
}
