//! The answer to "may this request go through?", and the numbers a caller may be told.

use std::{fmt, num::NonZeroU64, time::Duration};

/// What a limiter says about one request.
///
/// The durations count from the moment of the decision. [`remaining`](Self::remaining) and
/// `reset_after` describe the state the decision left behind; in what a service and a client are
/// told about a request that has waited, that of the end of its wait, if the limiter is in this
/// process.
///
/// ```
/// use tower_throttle::{Limiter, Quota, TokenBucket, Verdict};
///
/// let limiter = Limiter::new(TokenBucket::new(Quota::per_minute(2)));
/// let first = limiter.check();
/// assert_eq!(first.verdict, Verdict::Admit);
/// assert_eq!((first.limit, first.remaining()), (2, 1));
///
/// limiter.check();
/// let third = limiter.check();
/// assert!(third.is_denied());
/// assert!(third.retry_after.is_some_and(|wait| wait.as_secs() >= 29));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a decision that nobody looks at limits nothing"]
#[non_exhaustive]
pub struct Decision {
    /// Whether the request goes through, waits or is turned away.
    pub verdict: Verdict,
    /// The most that an unused key is ever granted at once.
    pub limit: u64,
    /// For a denied request, when the same request passes if nothing else comes: it is admitted
    /// exactly then and still denied one nanosecond earlier. `None` if it was not denied, or if it
    /// costs more than can ever be granted.
    pub retry_after: Option<Duration>,
    /// When the whole limit is available again if nothing else comes.
    pub reset_after: Duration,
    /// Which limit the numbers speak of: 0 for a single one, its position among several.
    pub policy: usize,
    pub(crate) remaining: Remaining,
}

/// A count that is a quotient: dividing is half of what a decision costs, and few who ask read it.
#[derive(Clone, Copy)]
pub(crate) struct Remaining {
    dividend: u64,
    divisor: NonZeroU64,
}

/// Goes through, waits or is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The request goes through now; its cost has been taken.
    Admit,
    /// The request has its place and goes through after this long; its cost has been taken.
    Wait(Duration),
    /// The request is turned away and has taken nothing.
    Deny,
}

impl Decision {
    /// The largest cost that would be admitted now.
    #[inline]
    pub const fn remaining(&self) -> u64 {
        self.remaining.dividend / self.remaining.divisor.get()
    }

    /// The same decision with another `remaining`.
    #[inline]
    pub const fn with_remaining(mut self, remaining: u64) -> Self {
        self.remaining = Remaining::count(remaining);
        self
    }

    /// The request goes through now.
    pub const fn is_admitted(&self) -> bool {
        matches!(self.verdict, Verdict::Admit)
    }

    /// The request is turned away.
    pub const fn is_denied(&self) -> bool {
        matches!(self.verdict, Verdict::Deny)
    }

    /// How long an accepted request waits before it goes through: zero when it is admitted now,
    /// `None` when it is turned away.
    pub const fn wait(&self) -> Option<Duration> {
        match self.verdict {
            Verdict::Admit => Some(Duration::ZERO),
            Verdict::Wait(wait) => Some(wait),
            Verdict::Deny => None,
        }
    }

    /// A decision, for algorithms and limiters of your own. The durations are nanoseconds.
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
        }
    }
}

impl Decision {
    /// The same decision, as a value of unknown origin. A call that is not inlined returns its decision
    /// in memory. Without this, the compiler would write the decisions of the inline paths to the
    /// same memory, and so compute fields that no caller reads.
    #[inline]
    pub(crate) fn hide_from_optimizer(self) -> Self {
        Self {
            policy: std::hint::black_box(self.policy),
            ..self
        }
    }

    /// The same decision, with the figures of `state`: of one from which nothing was taken.
    #[inline]
    pub(crate) const fn with_figures_of(mut self, state: &Self) -> Self {
        self.remaining = state.remaining;
        self.reset_after = state.reset_after;
        self
    }

    /// The same decision, with `dividend / divisor` remaining.
    #[inline]
    pub(crate) const fn with_remaining_ratio(mut self, dividend: u64, divisor: NonZeroU64) -> Self {
        self.remaining = Remaining { dividend, divisor };
        self
    }
}

/// A decision in half the room, for whoever has to keep it. From 584 years on a span is `MAX`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompactDecision {
    limit: u64,
    remaining: u64,
    reset_ns: u64,
    /// How long the request waits, or after how long it may come again.
    span_ns: u64,
    policy: u32,
    says: CompactVerdict,
}

/// What a decision says, and what its `span_ns` is.
#[derive(Clone, Copy, Debug)]
enum CompactVerdict {
    Admit,
    Wait,
    DenyRetry,
    Deny,
}

impl CompactDecision {
    pub(crate) fn new(decision: &Decision) -> Self {
        let (says, span) = match (decision.verdict, decision.retry_after) {
            (Verdict::Admit, _) => (CompactVerdict::Admit, Duration::ZERO),
            (Verdict::Wait(wait), _) => (CompactVerdict::Wait, wait),
            (Verdict::Deny, Some(retry)) => (CompactVerdict::DenyRetry, retry),
            (Verdict::Deny, None) => (CompactVerdict::Deny, Duration::ZERO),
        };
        Self {
            limit: decision.limit,
            remaining: decision.remaining(),
            reset_ns: duration_to_nanos(decision.reset_after),
            span_ns: duration_to_nanos(span),
            policy: u32::try_from(decision.policy).unwrap_or(u32::MAX),
            says,
        }
    }

    pub(crate) fn get(self) -> Decision {
        let (span, reset_after) = (duration(self.span_ns), duration(self.reset_ns));
        let (verdict, retry_after) = match self.says {
            CompactVerdict::Admit => (Verdict::Admit, None),
            CompactVerdict::Wait => (Verdict::Wait(span), None),
            CompactVerdict::DenyRetry => (Verdict::Deny, Some(span)),
            CompactVerdict::Deny => (Verdict::Deny, None),
        };
        Decision {
            retry_after,
            reset_after,
            policy: self.policy as usize,
            ..Decision::new(verdict, self.limit, self.remaining, None, 0)
        }
    }
}

fn duration_to_nanos(span: Duration) -> u64 {
    let whole = span.as_secs().checked_mul(1_000_000_000);
    let ns = whole.and_then(|whole| whole.checked_add(u64::from(span.subsec_nanos())));
    ns.unwrap_or(u64::MAX)
}

fn duration(ns: u64) -> Duration {
    if ns == u64::MAX {
        Duration::MAX
    } else {
        Duration::from_nanos(ns)
    }
}

impl Remaining {
    const fn count(count: u64) -> Self {
        Self {
            dividend: count,
            divisor: NonZeroU64::MIN,
        }
    }
}

/// By hand: equal quotients are equal, however they came about.
impl PartialEq for Remaining {
    fn eq(&self, other: &Self) -> bool {
        self.dividend / self.divisor == other.dividend / other.divisor
    }
}

impl Eq for Remaining {}

/// By hand: the number that a reader wants to see.
impl fmt::Debug for Remaining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.dividend / self.divisor).fmt(f)
    }
}

impl Verdict {
    /// `Admit` for no wait, else `Wait`.
    #[inline]
    pub(crate) const fn after(wait_ns: u64) -> Self {
        if wait_ns == 0 {
            Self::Admit
        } else {
            Self::Wait(Duration::from_nanos(wait_ns))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPANS: [Duration; 6] = [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_nanos(1_999_999_999),
        Duration::from_secs(86_400),
        Duration::from_nanos(u64::MAX - 1),
        Duration::MAX,
    ];

    fn all() -> impl Iterator<Item = Decision> {
        let verdicts = SPANS.into_iter().flat_map(|span| {
            [
                (Verdict::Admit, None),
                (Verdict::Wait(span), None),
                (Verdict::Deny, Some(span)),
                (Verdict::Deny, None),
            ]
        });
        verdicts.flat_map(|(verdict, retry_after)| {
            SPANS.map(|reset_after| Decision {
                verdict,
                retry_after,
                reset_after,
                policy: 3,
                ..Decision::new(Verdict::Admit, 100, 7, None, 0)
            })
        })
    }

    #[test]
    fn a_compact_decision_is_the_same() {
        assert_eq!(all().count(), 144);
        for decision in all() {
            assert_eq!(CompactDecision::new(&decision).get(), decision);
        }
        let quotient = Decision::new(Verdict::Admit, 100, 0, None, 1)
            .with_remaining_ratio(100, NonZeroU64::new(3).unwrap());
        assert_eq!(CompactDecision::new(&quotient).get(), quotient);
    }
}
