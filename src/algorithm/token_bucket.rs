//! Tokens that are refilled at a steady rate.

use std::time::Duration;

use super::fields::Fields;
use super::portable;
use super::setting::{MAX_WAIT, QUEUE, Range, Setting};
use super::{Algorithm, Cost, ExactNanos, Facts, GiveBack, Portable, bucket::Bucket};
use crate::clock::{Tick, nanos};
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::quota::Quota;

/// A bucket of B tokens, refilled continuously at L per W; a request of cost n takes n.
///
/// Bursts up to B pass at once and the long-run rate is exactly L/W: at most `B + T * L/W` in any
/// interval of length T. Nothing is rounded between calls, so the polling interval does not change
/// the refill.
///
/// ```text
/// burst 3, one token each  |----|
/// requests   xxxx x    x   x  x x
/// admitted   ✓✓✓       ✓   ✓    ✓
/// denied        ✗ ✗           ✗     retry_after: to the next whole token
/// tokens     3210 0   10   10 0 10
/// ```
///
/// The state of a key is the moment when its bucket is full again, so an idle key needs no memory. With
/// another limit or burst, the tokens that were used stay used, to the last part of one.
///
/// # Never more than n in any period
/// The interval T includes both ends, so a burst of B and a rate of n - B per period keep that promise: 100
/// in any minute are `Quota::per_minute(50).burst(50)`. [`SlidingLog`](crate::SlidingLog) and a strict
/// [`SlidingGrid`](crate::SlidingGrid) keep it at a rate of n per period, and take more memory per key.
///
#[cfg_attr(doc, doc = crate::picture::picture!(
    "algorithms/token_bucket.svg",
    "TokenBucket and six kinds of traffic: a full bucket passes a burst at once, and then the rate is that of the limit."
))]
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{Limiter, ManualClock, Quota, TokenBucket};
///
/// let clock = ManualClock::new();
/// let bucket = TokenBucket::new(Quota::per_second(10).burst(50));
/// let limiter = Limiter::new(bucket).with_clock(clock.clone());
/// assert!(limiter.check_n(50).is_admitted());
/// assert_eq!(limiter.check().retry_after, Some(Duration::from_millis(100)));
/// clock.advance(Duration::from_millis(100));
/// assert!(limiter.check().is_admitted());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    quota: Quota,
    bucket: Bucket,
    /// Tokens of a key never seen; `None` for a full bucket.
    initial: Option<u64>,
    /// How many units may wait for their tokens.
    pub(crate) queue_limit: u64,
    pub(crate) max_wait: u64,
    /// The longest wait that both allow.
    longest_wait: ExactNanos,
}

static INITIAL: Setting = Setting::count("initial", Range::BelowCapacity);

impl TokenBucket {
    /// A full bucket that holds the quota's [burst](Quota::burst), or its limit if no burst is set.
    pub const fn new(quota: Quota) -> Self {
        Self {
            bucket: Bucket::new(&quota),
            quota,
            initial: None,
            queue_limit: 0,
            max_wait: u64::MAX,
            longest_wait: ExactNanos::ZERO,
        }
    }

    /// The tokens of a new key, instead of a full bucket; at most the capacity.
    ///
    /// A key that starts with less than a full bucket is never forgettable: forgetting it would
    /// take its tokens away.
    ///
    /// ```
    /// use tower_throttle::{Limiter, Quota, TokenBucket};
    ///
    /// let limiter = Limiter::new(TokenBucket::new(Quota::per_hour(60)).initial(1));
    /// assert!(limiter.check().is_admitted());
    /// assert!(limiter.check().is_denied());
    /// ```
    #[must_use]
    pub const fn initial(mut self, tokens: u64) -> Self {
        self.initial = Some(tokens);
        self
    }

    /// Lets requests wait for their tokens instead of denying them, at most `units` of cost at a
    /// time. Bursts still pass at once; later requests are paced.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Limiter, Quota, TokenBucket, Verdict};
    ///
    /// let limiter = Limiter::new(TokenBucket::new(Quota::per_minute(1)).queue(1));
    /// assert!(limiter.check().is_admitted());
    /// assert!(matches!(limiter.check().verdict, Verdict::Wait(_)));
    /// assert!(limiter.check().is_denied());
    /// ```
    #[must_use]
    pub fn queue(self, units: u64) -> Self {
        self.with_queue(units, self.max_wait)
    }

    /// Denies a request at once if it would wait longer than `max_wait`. Needs a
    /// [`queue`](Self::queue).
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        self.with_queue(self.queue_limit, nanos(max_wait))
    }

    /// The tokens that a new key has less than a full bucket.
    #[inline]
    pub(crate) fn missing_tokens(&self) -> u64 {
        match self.initial {
            None => 0,
            Some(tokens) => self.bucket.capacity.saturating_sub(tokens),
        }
    }

    fn with_queue(self, queue_limit: u64, max_wait: u64) -> Self {
        let longest_wait = self
            .bucket
            .interval
            .time_for(queue_limit)
            .min(ExactNanos::from_nanos(max_wait));
        Self {
            queue_limit,
            max_wait,
            longest_wait,
            ..self
        }
    }
}

impl Algorithm for TokenBucket {
    type State = ExactNanos;

    fn quota(&self) -> Quota {
        self.quota
    }

    #[inline]
    fn facts(&self) -> Facts {
        Facts {
            waiting: 1,
            queues: self.queue_limit > 0,
            max_wait: Duration::from_nanos(self.max_wait),
            replans_line: true,
            ..Facts::ONE_LIMIT
        }
    }

    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        let bucket = Self::new(quota).with_queue(self.queue_limit, self.max_wait);
        Ok(match self.initial {
            Some(tokens) => bucket.initial(tokens),
            None => bucket,
        })
    }

    fn validate(&self) -> Result<(), ConfigError> {
        portable::check(self)
    }

    #[inline]
    fn fresh(&self, now: Tick) -> ExactNanos {
        match self.missing_tokens() {
            0 => ExactNanos::ZERO,
            tokens => self
                .bucket
                .with_used(self.bucket.interval.time_for(tokens), now),
        }
    }

    #[expect(
        clippy::inline_always,
        reason = "so that the figures a caller does not read are not computed: half of the time"
    )]
    #[inline(always)]
    fn decide(&self, state: &mut ExactNanos, now: Tick, cost: u64) -> Decision {
        self.bucket.take(state, now, cost, self.longest_wait)
    }

    fn reserve(
        &self,
        state: &mut ExactNanos,
        now: Tick,
        cost: u64,
        max_wait: Duration,
    ) -> Decision {
        let most = ExactNanos::from_nanos(nanos(max_wait));
        self.bucket.take(state, now, cost, most)
    }

    fn refund(&self, state: &mut ExactNanos, now: Tick, cost: Cost, why: GiveBack) {
        let cost = cost.of_line(self.queue_limit > 0, now, why);
        let (interval, unused) = (&self.bucket.interval, ExactNanos::from_tick(now));
        *state = interval.apply_refund(*state, unused, cost, now);
    }

    fn charge(&self, state: &mut ExactNanos, now: Tick, cost: u64) -> Duration {
        Duration::from_nanos(self.bucket.charge(state, now, cost))
    }

    fn rescale(&self, state: &mut ExactNanos, from: &Self, now: Tick) {
        *state = self.bucket.convert(*state, &from.bucket, now);
    }

    fn forgettable_at(&self, state: &ExactNanos) -> Tick {
        match self.missing_tokens() {
            0 => Tick::from_nanos(state.ceil()),
            _ => Tick::MAX,
        }
    }
}

impl Portable for TokenBucket {
    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.tag(4);
        let (mut quota, mut queue_limit, mut max_wait) =
            (self.quota, self.queue_limit, self.max_wait);
        fields.quota(&mut quota);
        let mut initial = self.initial.filter(|tokens| *tokens < quota.capacity());
        fields.setting(&INITIAL, &mut initial);
        fields.setting_or(&QUEUE, &mut queue_limit, 0);
        fields.setting_or(&MAX_WAIT, &mut max_wait, u64::MAX);
        *self = Self {
            initial,
            ..Self::new(quota).with_queue(queue_limit, max_wait)
        };
    }

    fn state_fields(&self, state: &mut ExactNanos, fields: &mut Fields<'_>) {
        self.bucket.interval.state_fields(state, fields);
    }
}

impl From<Quota> for TokenBucket {
    fn from(quota: Quota) -> Self {
        Self::new(quota)
    }
}
