//! Tokens that are refilled at a steady rate.

use std::time::Duration;

use super::bucket::Bucket;
use super::fields::Fields;
use super::setting::{Range, Setting};
use super::{Algorithm, Capabilities, Cost, ExactNanos, GiveBack, Kernel, Level, Turns};
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
/// assert!(limiter.check(50).is_admitted());
/// assert_eq!(limiter.check(1).retry_after, Some(Duration::from_millis(100)));
/// clock.advance(Duration::from_millis(100));
/// assert!(limiter.check(1).is_admitted());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    quota: Quota,
    bucket: Bucket,
    /// Tokens of a key never seen; `None` for a full bucket.
    initial: Option<u64>,
}

/// A bucket that drains at L per W.
///
/// A request of cost n adds n to the level and passes if the level stays within B. That is a [`TokenBucket`] seen from
/// the other side: what it says is used is the level. So both are one type.
///
/// With a burst of 1 it smooths traffic: requests of one key are t = W/L apart, and idle time earns no credit. In a
/// layer with a [queue](crate::RateLimitLayer::queue) they wait for that.
///
/// ```text
/// 2 per second, burst 1  0s        0.5s       1s        1.5s
/// requests               xxxx                             x
/// go, with a queue of 2  ✓         ✓          ✓           ✓
/// denied                    ✗      (two wait, the fourth finds the line full)
/// ```
///
#[cfg_attr(doc, doc = crate::picture::picture!(
    "algorithms/leaky_bucket.svg",
    "LeakyBucket and six kinds of traffic: a queue releases requests evenly, at the rate of the limit."
))]
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{LeakyBucket, Limiter, ManualClock, Quota};
///
/// let bucket = LeakyBucket::new(Quota::per_second(2).burst(1));
/// let limiter = Limiter::new(bucket).with_clock(ManualClock::new());
/// assert!(limiter.check(1).is_admitted());
/// assert_eq!(limiter.check(1).retry_after, Some(Duration::from_millis(500)));
/// ```
pub type LeakyBucket = TokenBucket;

static INITIAL: Setting = Setting::count("initial", Range::Any);
static DEBT: Setting = Setting::count("debt", Range::Units);
static REFILL_EVERY: Setting = Setting::time("refill_every", Range::Span);

impl TokenBucket {
    /// A full bucket that holds the quota's [burst](Quota::burst), or its limit if no burst is set.
    pub const fn new(quota: Quota) -> Self {
        Self {
            bucket: Bucket::new(&quota),
            quota,
            initial: None,
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
    /// assert!(limiter.check(1).is_admitted());
    /// assert!(limiter.check(1).is_denied());
    /// ```
    #[must_use]
    pub const fn initial(mut self, tokens: u64) -> Self {
        self.initial = Some(tokens);
        self
    }

    /// Lets the bucket go into debt, by at most `units`: while it owes nothing, a request passes at once
    /// whatever it holds, and later requests wait until the debt is paid.
    ///
    /// This is what Guava's `RateLimiter` does: a large request pays for itself afterwards. At most
    /// `B + units + T * L/W` is admitted in any interval of length T. A request that costs more than the
    /// capacity and the debt is never admitted.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Limiter, ManualClock, Quota, TokenBucket};
    ///
    /// // RateLimiter.create(2.0)
    /// let bucket = TokenBucket::new(Quota::per_second(2)).debt(1_000);
    /// let limiter = Limiter::new(bucket).with_clock(ManualClock::new());
    /// let waits = [1, 1, 1, 1, 10, 1].map(|cost| limiter.reserve(cost, Duration::MAX).wait());
    /// let ms = |ms| Some(Duration::from_millis(ms));
    /// assert_eq!(waits, [ms(0), ms(0), ms(0), ms(500), ms(1_000), ms(6_000)]);
    /// ```
    #[must_use]
    pub fn debt(mut self, units: u64) -> Self {
        self.bucket.debt = units;
        self
    }

    /// Refills in steps of this length instead of steadily: what the rate makes in a step comes back at
    /// its end, all at once. At most `B + T * L/W` and one step more are admitted in any interval of length
    /// T.
    ///
    /// Steps begin at multiples of their length, for all keys at the same moments.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Limiter, ManualClock, Quota, TokenBucket};
    ///
    /// let bucket = TokenBucket::new(Quota::per_second(100)).refill_every(Duration::from_millis(100));
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::new(bucket).with_clock(clock.clone());
    /// assert!(limiter.check(100).is_admitted());
    /// clock.advance(Duration::from_millis(70));
    /// assert_eq!(limiter.check(1).retry_after, Some(Duration::from_millis(30)));
    /// clock.advance(Duration::from_millis(30));
    /// assert_eq!(limiter.peek(1).remaining(), 10);
    /// ```
    #[must_use]
    pub fn refill_every(mut self, step: Duration) -> Self {
        self.bucket.step = nanos(step);
        self
    }

    fn of_quota(mut self, quota: Quota) -> Self {
        let Bucket { debt, step, .. } = self.bucket;
        (self.quota, self.bucket) = (quota, Bucket::new(&quota));
        (self.bucket.debt, self.bucket.step) = (debt, step);
        self
    }

    /// The tokens that a new key has less than a full bucket.
    #[inline]
    pub(crate) fn missing_tokens(&self) -> u64 {
        match self.initial {
            None => 0,
            Some(tokens) => self.bucket.capacity.saturating_sub(tokens),
        }
    }
}

impl Algorithm for TokenBucket {
    type State = ExactNanos;

    fn quota(&self) -> Quota {
        self.quota
    }

    #[inline]
    fn capabilities(&self) -> Capabilities {
        let longest = |step: u64| {
            let most = self.bucket.capacity.saturating_add(self.bucket.debt);
            step.saturating_add(self.bucket.interval.time_for(most).ceil())
        };
        Capabilities::with_turns(match self.bucket.step {
            0 => Turns::Booked,
            step => Turns::Steps(longest(step)),
        })
    }

    /// Without a list of the settings: a key may have a quota of its own.
    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        Ok(self.of_quota(quota))
    }

    #[inline]
    fn fresh(&self, now: Tick) -> ExactNanos {
        match self.missing_tokens() {
            0 => ExactNanos::ZERO,
            tokens => {
                let used = self.bucket.interval.time_for(tokens);
                self.bucket.with_used(used, self.bucket.refilled_at(now))
            }
        }
    }

    #[expect(
        clippy::inline_always,
        reason = "so that figures that are not read are not computed: 131 instructions of a decision, not 185"
    )]
    #[inline(always)]
    fn decide(&self, state: &mut ExactNanos, now: Tick, cost: u64) -> Decision {
        self.bucket.take(state, now, cost)
    }

    fn take_turn(&self, state: &mut ExactNanos, at: Tick, cost: u64) -> Decision {
        let exact = *state;
        let decision = self.decide(state, at, cost);
        if self.bucket.step == 0 {
            self.bucket.interval.correct(state, exact, at);
        }
        decision
    }

    fn refund(&self, state: &mut ExactNanos, now: Tick, cost: Cost, why: GiveBack) {
        let at = self.bucket.refilled_at(cost.at);
        let cost = Cost { at, ..cost };
        self.bucket
            .refund(state, self.bucket.refilled_at(now), cost, why);
    }

    fn charge(&self, state: &mut ExactNanos, now: Tick, cost: u64) -> Duration {
        let owed = self
            .bucket
            .charge(state, self.bucket.refilled_at(now), cost);
        Duration::from_nanos(self.bucket.until_refill(owed, now))
    }

    fn rescale(&self, state: &mut ExactNanos, from: &Self, now: Tick) {
        let moments = (from.bucket.refilled_at(now), self.bucket.refilled_at(now));
        *state = self.bucket.convert(*state, &from.bucket, moments);
    }

    fn forgettable_at(&self, state: &ExactNanos) -> Tick {
        match self.missing_tokens() {
            0 => Tick::from_nanos(self.bucket.until_refill(state.ceil(), Tick::ZERO)),
            _ => Tick::MAX,
        }
    }

    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.tag(4);
        fields.quota(&mut self.quota);
        self.initial = (self.initial).filter(|tokens| *tokens < self.quota.capacity());
        fields.setting(&INITIAL, &mut self.initial);
        fields.setting_or(&DEBT, &mut self.bucket.debt, 0);
        fields.setting_or(&REFILL_EVERY, &mut self.bucket.step, 0);
        *self = self.of_quota(self.quota);
        if self.bucket.step == 0 && self.bucket.debt == 0 {
            fields.kernel(|_| {
                Kernel::Level(Level {
                    rate: self.quota.limit(),
                    period: self.quota.period_ns(),
                    capacity: self.quota.capacity(),
                    initial: self.missing_tokens(),
                })
            });
        }
    }

    fn state_fields(&self, state: &mut ExactNanos, fields: &mut Fields<'_>) {
        self.bucket.interval.state_fields(state, fields);
    }
}
