//! The decision on one request, and the figures that are reported with it.

use std::{fmt, num::NonZeroU64, time::Duration};

use crate::receipt::Receipt;

/// A limiter's decision on one request.
///
/// All durations are measured from the moment of the decision. [`remaining`](Self::remaining) and
/// `reset_after` describe the state after the decision. For a request that has waited in a layer,
/// the inner service and the client get the figures of the end of the wait if the limiter is in
/// this process, otherwise those of the original decision.
///
/// ```
/// use tower_throttle::{Limiter, Quota, TokenBucket, Verdict};
///
/// let limiter = Limiter::new(TokenBucket::new(Quota::per_minute(2)));
/// let first = limiter.check(1);
/// assert_eq!(first.verdict, Verdict::Admit);
/// assert_eq!((first.limit, first.remaining()), (2, 1));
///
/// limiter.check(1);
/// let third = limiter.check(1);
/// assert!(third.is_denied());
/// assert!(third.retry_after.is_some_and(|wait| wait.as_secs() >= 29));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a decision has no effect unless the caller acts on it"]
#[non_exhaustive]
pub struct Decision {
    /// Whether the request is admitted, waits or is denied.
    pub verdict: Verdict,
    /// The largest cost that an unused key is granted at once. 0 of a key that is blocked, and `u64::MAX` of one
    /// without a limit.
    pub limit: u64,
    /// After how long a denied request would be admitted, provided that no other request arrives.
    ///
    /// The value is exact: one nanosecond earlier the request would still be denied. `None` if the
    /// request was not denied, or if it costs more than can ever be granted.
    pub retry_after: Option<Duration>,
    /// After how long the whole limit is available again, provided that no other request arrives.
    pub reset_after: Duration,
    /// The index of the limit that the figures describe, counted through all limits of a layer. Always 0 if there is only
    /// one limit.
    pub policy: usize,
    pub(crate) remaining: Remaining,
    pub(crate) taken: Taken,
}

/// The remaining count, divided lazily: the division is half a decision's cost and is rarely read.
#[derive(Clone, Copy)]
pub(crate) struct Remaining {
    dividend: u64,
    divisor: NonZeroU64,
}

/// The receipt of a decision. Decisions with equal figures are equal, whenever they were made.
#[derive(Clone, Copy)]
pub(crate) struct Taken(Receipt);

/// Whether a request is admitted, waits or is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The request proceeds now. Its cost has been taken.
    Admit,
    /// The request has a queue position and proceeds after this time. Its cost has been taken.
    Wait(Duration),
    /// The request is denied. Nothing has been taken.
    Deny,
}

impl Decision {
    /// The largest cost that would be admitted now. A bucket with a [`debt`](crate::TokenBucket::debt) and a
    /// [`WarmUp`](crate::WarmUp) admit a larger one too.
    #[inline]
    pub const fn remaining(&self) -> u64 {
        self.remaining.dividend / self.remaining.divisor.get()
    }

    /// The part of the limit that is used, in percent and rounded down.
    pub(crate) fn use_percent(&self) -> u64 {
        let used = u128::from(self.limit.saturating_sub(self.remaining())) * 100;
        u64::try_from(used / u128::from(self.limit.max(1))).unwrap_or(100)
    }

    /// The same decision with another `remaining`.
    #[inline]
    pub(crate) const fn with_remaining(mut self, remaining: u64) -> Self {
        self.remaining = Remaining::count(remaining);
        self
    }

    /// When the backend took the cost, for [`Op::Refund`](crate::store::Op::Refund). A decision that
    /// no backend made has [`Receipt::NOW`]. Comparisons of decisions ignore it.
    #[inline]
    pub const fn receipt(&self) -> Receipt {
        self.taken.0
    }

    /// The same decision with another receipt, for a backend of your own.
    #[inline]
    pub const fn with_receipt(mut self, receipt: Receipt) -> Self {
        self.taken = Taken(receipt);
        self
    }

    /// Whether the request is admitted now.
    pub const fn is_admitted(&self) -> bool {
        matches!(self.verdict, Verdict::Admit)
    }

    /// Whether the request is denied.
    pub const fn is_denied(&self) -> bool {
        matches!(self.verdict, Verdict::Deny)
    }

    /// How long the request waits before it proceeds: zero if it is admitted now, `None` if it is
    /// denied.
    pub const fn wait(&self) -> Option<Duration> {
        match self.verdict {
            Verdict::Admit => Some(Duration::ZERO),
            Verdict::Wait(wait) => Some(wait),
            Verdict::Deny => None,
        }
    }

    /// Creates a decision, for custom algorithms and limiters. The durations are in nanoseconds.
    ///
    /// ```
    /// use tower_throttle::{Decision, Verdict};
    ///
    /// let decision = Decision::new(Verdict::Deny, 10, 0, Some(250), 1_000);
    /// assert_eq!(decision.retry_after.unwrap().as_nanos(), 250);
    /// ```
    #[inline]
    pub const fn new(
        verdict: Verdict,
        limit: u64,
        remaining: u64,
        retry_after: Option<u64>,
        reset_after: u64,
    ) -> Self {
        Self {
            verdict,
            limit,
            remaining: Remaining::count(remaining),
            retry_after: match retry_after {
                Some(ns) => Some(Duration::from_nanos(ns)),
                None => None,
            },
            reset_after: Duration::from_nanos(reset_after),
            policy: 0,
            taken: Taken(Receipt::NOW),
        }
    }
}

/// What a waiting request costs, and those before it.
///
/// ```
/// use tower_throttle::algorithm::LineCosts;
///
/// // Three of the same cost, and a request behind them.
/// let costs = LineCosts { ahead: 6, own: 2, are_equal: true };
/// assert_eq!(costs.ahead, 3 * costs.own);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineCosts {
    /// What the others cost together.
    pub ahead: u64,
    /// What it costs itself.
    pub own: u64,
    /// Whether each of the others costs the same as it does.
    pub are_equal: bool,
}

impl LineCosts {
    /// Those of a request that is the first.
    pub(crate) const fn alone(own: u64) -> Self {
        Self {
            ahead: 0,
            own,
            are_equal: true,
        }
    }

    /// With so much more ahead, of which `each` costs this, if all cost the same.
    pub(crate) fn behind(mut self, units: u128, each: Option<u64>) -> Self {
        let more = u64::try_from(units).unwrap_or(u64::MAX);
        self.ahead = self.ahead.saturating_add(more);
        self.are_equal &= units == 0 || each == Some(self.own);
        self
    }
}

impl Decision {
    /// After how long it goes on, or would be admitted. `None` if never.
    pub(crate) fn until_admitted(&self) -> Option<Duration> {
        self.wait().or(self.retry_after)
    }

    /// Whether there is no limit, so that the figures say nothing.
    pub(crate) const fn is_unlimited(&self) -> bool {
        self.limit == u64::MAX
    }

    /// [`with_receipt`](Self::with_receipt) without copying the decision.
    #[inline]
    pub(crate) const fn set_receipt(&mut self, receipt: Receipt) {
        self.taken = Taken(receipt);
    }

    /// The same decision with the figures of `state`, a decision that took nothing.
    #[inline]
    pub(crate) const fn with_figures_of(mut self, state: &Self) -> Self {
        self.remaining = state.remaining;
        self.reset_after = state.reset_after;
        self
    }

    /// The same decision with `dividend / divisor` remaining.
    #[inline]
    pub(crate) const fn with_remaining_ratio(mut self, dividend: u64, divisor: NonZeroU64) -> Self {
        self.remaining = Remaining { dividend, divisor };
        self
    }
}

/// Rounded up: what waits for the rounded time has waited long enough.
pub(crate) const fn ceil_seconds(span: Duration) -> u64 {
    span.as_secs()
        .saturating_add((span.subsec_nanos() > 0) as u64)
}

impl Remaining {
    const fn count(count: u64) -> Self {
        Self {
            dividend: count,
            divisor: NonZeroU64::MIN,
        }
    }
}

/// Manual impl: derive would compare dividends and divisors instead of quotients.
impl PartialEq for Remaining {
    fn eq(&self, other: &Self) -> bool {
        self.dividend / self.divisor == other.dividend / other.divisor
    }
}

impl Eq for Remaining {}

/// Manual impl: prints the quotient, not the dividend and the divisor.
impl fmt::Debug for Remaining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.dividend / self.divisor).fmt(f)
    }
}

/// Manual impl: a receipt is no figure of a decision.
impl PartialEq for Taken {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Taken {}

/// Manual impl: without the name of a private type.
impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
