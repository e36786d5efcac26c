//! Tokens that are refilled at a steady rate.

mod steps;

use std::time::Duration;

use self::steps::Steps;
use super::fields::Fields;
use super::setting::{Range, Setting};
use super::{
    Algorithm, Capabilities, Cost, ExactNanos, GiveBack, Kernel, Level,
    bucket::{Bucket, LONGEST},
};
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
    steps: Steps,
}

static INITIAL: Setting = Setting::count("initial", Range::BelowCapacity);
static DEBT: Setting = Setting::count("debt", Range::Units(1));
static REFILL_EVERY: Setting = Setting::time("refill_every", Range::WholeUnits);
static ALIGNED: Setting = Setting::flag("aligned").needs("refill_every");

impl TokenBucket {
    /// A full bucket that holds the quota's [burst](Quota::burst), or its limit if no burst is set.
    pub const fn new(quota: Quota) -> Self {
        Self {
            bucket: Bucket::new(&quota),
            quota,
            initial: None,
            steps: Steps::NONE,
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
    /// The first step of a key begins when its full bucket is first used. A step in which the limit does
    /// not refill a whole number of tokens is refused when a limiter is built.
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
    pub fn refill_every(self, step: Duration) -> Self {
        self.with_steps(nanos(step), self.steps.is_aligned)
    }

    /// Lets steps begin at multiples of their length, for all keys at the same moments. Needs
    /// [`refill_every`](Self::refill_every).
    #[must_use]
    pub fn aligned(self) -> Self {
        self.with_steps(self.steps.length, true)
    }

    fn with_steps(self, refill_every: u64, is_aligned: bool) -> Self {
        Self {
            steps: Steps::new(&self.quota, refill_every, is_aligned),
            ..self
        }
    }

    fn of_quota(&self, quota: Quota) -> Self {
        let mut bucket = Bucket::new(&quota);
        bucket.debt = self.bucket.debt;
        Self {
            steps: Steps::new(&quota, self.steps.length, self.steps.is_aligned),
            bucket,
            quota,
            ..*self
        }
    }

    /// The tokens that are used, rounded up.
    fn used(&self, state: ExactNanos, now: Tick) -> u64 {
        if let Some(steps) = self.steps.active() {
            return steps.settled(state, now).fraction;
        }
        let interval = &self.bucket.interval;
        let used = self.bucket.used(state, now);
        let whole = interval.units_in(used);
        whole.saturating_add(u64::from(interval.time_for(whole) < used))
    }

    /// The state of a bucket of which `tokens` are used at `now`.
    fn with_used(&self, tokens: u64, now: Tick) -> ExactNanos {
        match self.steps.active() {
            Some(steps) => steps.with_used(tokens, now),
            None => self
                .bucket
                .with_used(self.bucket.interval.time_for(tokens), now),
        }
    }

    fn full_at(&self, state: ExactNanos) -> Tick {
        Tick::from_nanos(match self.steps.active() {
            Some(steps) => steps.full_at(state),
            None => state.ceil(),
        })
    }

    /// The tokens that come back in this many nanoseconds, rounded up.
    fn refilled_in(&self, span: u64) -> u64 {
        if let Some(steps) = self.steps.active() {
            return steps.refilled_in(span);
        }
        let units = self.bucket.interval.units_in(ExactNanos::from_nanos(span));
        units.saturating_add(1)
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
        Capabilities {
            books_turns: true,
            ..Capabilities::ONE_LIMIT
        }
    }

    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        Ok(self.of_quota(quota))
    }

    #[inline]
    fn fresh(&self, now: Tick) -> ExactNanos {
        match self.missing_tokens() {
            0 => ExactNanos::ZERO,
            tokens => self.with_used(tokens, now),
        }
    }

    #[expect(
        clippy::inline_always,
        reason = "so that the figures a caller does not read are not computed: half of the time"
    )]
    #[inline(always)]
    fn decide(&self, state: &mut ExactNanos, now: Tick, cost: u64) -> Decision {
        if let Some(steps) = self.steps.active() {
            return steps.take(state, now, cost, &self.bucket);
        }
        self.bucket.take(state, now, cost)
    }

    fn take_turn(&self, state: &mut ExactNanos, at: Tick, cost: u64) -> Decision {
        if let Some(steps) = self.steps.active() {
            return steps.take(state, at, cost, &self.bucket);
        }
        self.bucket.take_turn(state, at, cost)
    }

    fn expected_wait(
        &self,
        state: &ExactNanos,
        at: Tick,
        ahead: u64,
        cost: u64,
    ) -> Option<Duration> {
        if let Some(steps) = self.steps.active() {
            let mut state = *state;
            steps.charge(&mut state, at, ahead, self.bucket.capacity);
            let decision = steps.take(&mut state, at, cost, &self.bucket);
            return decision.until_admitted();
        }
        self.bucket.expected_wait(*state, at, ahead, cost)
    }

    fn refund(&self, state: &mut ExactNanos, now: Tick, cost: Cost, why: GiveBack) {
        match self.steps.active() {
            Some(steps) => steps.refund(state, now, cost, why, &self.bucket),
            None => self.bucket.refund(state, now, cost, why),
        }
    }

    fn charge(&self, state: &mut ExactNanos, now: Tick, cost: u64) -> Duration {
        Duration::from_nanos(match self.steps.active() {
            Some(steps) => steps.charge(state, now, cost, self.bucket.capacity),
            None => self.bucket.charge(state, now, cost),
        })
    }

    /// Between a steady refill and steps, and between steps, the tokens that were used are counted anew, rounded
    /// up.
    fn rescale(&self, state: &mut ExactNanos, from: &Self, now: Tick) {
        let (steps, before) = (self.steps.active(), from.steps.active());
        if steps.is_none() && before.is_none() {
            *state = self.bucket.convert(*state, &from.bucket, now);
            return;
        }
        let as_long_as_before = nanos(from.full_at(*state).since(now));
        let longest = self.bucket.capacity.saturating_mul(LONGEST);
        let most = self.refilled_in(as_long_as_before).max(longest);
        let used = from.used(*state, now).min(most).min(Tick::MAX.as_nanos());
        *state = match (steps, before) {
            (Some(steps), Some(before)) if steps.is_same_layout(before) => {
                ExactNanos::new(before.settled(*state, now).ns, used)
            }
            _ => self.with_used(used, now),
        };
    }

    fn forgettable_at(&self, state: &ExactNanos) -> Tick {
        match self.missing_tokens() {
            0 => self.full_at(*state),
            _ => Tick::MAX,
        }
    }

    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.tag(4);
        let mut quota = self.quota;
        fields.quota(&mut quota);
        let mut initial = self.initial.filter(|tokens| *tokens < quota.capacity());
        fields.setting(&INITIAL, &mut initial);
        fields.setting_or(&DEBT, &mut self.bucket.debt, 0);
        fields.setting_or(&REFILL_EVERY, &mut self.steps.length, 0);
        fields.flag(&ALIGNED, &mut self.steps.is_aligned);
        *self = Self {
            initial,
            ..self.of_quota(quota)
        };
        if self.steps.active().is_none() && self.bucket.debt == 0 {
            fields.kernel(|_| {
                Kernel::Level(Level {
                    initial: self.missing_tokens(),
                    ..Level::new(&self.quota, true)
                })
            });
        }
    }

    fn state_fields(&self, state: &mut ExactNanos, fields: &mut Fields<'_>) {
        match self.steps.active() {
            Some(steps) => {
                if steps.is_aligned {
                    let length = steps.length;
                    fields.end(&mut state.ns, 0, |at| at.as_nanos() / length * length);
                } else {
                    fields.moment(&mut state.ns);
                }
                fields.count(&mut state.fraction);
            }
            None => self.bucket.interval.state_fields(state, fields),
        }
    }
}

impl From<Quota> for TokenBucket {
    fn from(quota: Quota) -> Self {
        Self::new(quota)
    }
}
