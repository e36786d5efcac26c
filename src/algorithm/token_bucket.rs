//! Tokens that come back at a steady rate.

use std::time::Duration;

use super::{
    Algorithm, Inherit,
    at_most::AtMost,
    bucket::Bucket,
    interval::{ExactNanos, Rounding},
};
use crate::clock::{Tick, nanos};
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::quota::Quota;

/// A bucket of B tokens, refilled continuously at L per W; a request of cost n takes n.
///
/// Bursts up to B pass at once and the long-run rate is exactly L/W: at most `B + T * L/W` in any
/// interval of length T. Nothing is rounded between calls, so polling often refills as much as
/// polling seldom.
///
/// ```text
/// burst 3, one token each  |----|
/// requests   xxxx x    x   x  x x
/// admitted   ✓✓✓       ✓   ✓    ✓
/// denied        ✗ ✗           ✗     retry_after: to the next whole token
/// tokens     3210 0   10   10 0 10
/// ```
///
/// The state of a key is the moment at which its bucket is full again, so an idle key needs none.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{Limiter, ManualClock, Quota, TokenBucket};
///
/// let clock = ManualClock::new();
/// let bucket = TokenBucket::new(Quota::per_second(10).burst(50));
/// let limiter = Limiter::with_clock(bucket, clock.clone());
/// assert!(limiter.check_n(50).is_admitted());
/// assert_eq!(limiter.check().retry_after, Some(Duration::from_millis(100)));
/// clock.advance(Duration::from_millis(100));
/// assert!(limiter.check().is_admitted());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    quota: Quota,
    bucket: Bucket,
    /// Tokens of a key never seen, if not all.
    initial: Option<u64>,
    /// How many units may wait for their tokens, and how long.
    queue: u64,
    max_wait: u64,
    /// What the two allow together.
    longest_wait: ExactNanos,
}

impl TokenBucket {
    /// A full bucket that holds the quota's [burst](Quota::burst), or its limit where none was
    /// given.
    pub const fn new(quota: Quota) -> Self {
        Self {
            bucket: Bucket::new(&quota),
            quota,
            initial: None,
            queue: 0,
            max_wait: u64::MAX,
            longest_wait: ExactNanos::ZERO,
        }
    }

    /// "Never more than `n` in any period": see [`AtMost::in_any`].
    pub const fn at_most(n: u64) -> AtMost<Self> {
        AtMost::new(n)
    }

    /// The tokens a new key starts with, instead of a full bucket. More than the capacity means
    /// the capacity.
    ///
    /// A key that starts with less than a full bucket is never forgotten silently: forgetting it
    /// would take its tokens away.
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
    /// time. Bursts still pass at once; what comes after is paced.
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

    /// Denies at once a request that would have to wait longer than `max_wait`. Without a
    /// [`queue`](Self::queue) no request waits.
    #[must_use]
    pub fn max_wait(self, max_wait: Duration) -> Self {
        self.with_queue(self.queue, nanos(max_wait))
    }

    /// The tokens that a new key lacks of a full bucket.
    #[inline]
    fn missing_tokens(&self) -> u64 {
        match self.initial {
            None => 0,
            Some(tokens) => self.bucket.capacity.saturating_sub(tokens),
        }
    }

    fn with_queue(self, queue: u64, max_wait: u64) -> Self {
        let longest_wait = self.bucket.pace.span(queue).min(ExactNanos {
            ns: max_wait,
            part: 0,
        });
        Self {
            queue,
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

    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        let bucket = Self::new(quota).with_queue(self.queue, self.max_wait);
        Ok(match self.initial {
            Some(tokens) => bucket.initial(tokens),
            None => bucket,
        })
    }

    #[inline]
    fn fresh(&self, now: Tick) -> ExactNanos {
        match self.missing_tokens() {
            0 => ExactNanos::ZERO,
            tokens => self.bucket.with_used(self.bucket.pace.span(tokens), now),
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

    #[inline]
    fn keeps_line(&self) -> bool {
        true
    }

    #[inline]
    fn replans_line(&self) -> bool {
        true
    }

    fn reserve(
        &self,
        state: &mut ExactNanos,
        now: Tick,
        cost: u64,
        max_wait: Duration,
    ) -> Decision {
        let most = ExactNanos {
            ns: nanos(max_wait),
            part: 0,
        };
        self.bucket.take(state, now, cost, most)
    }

    fn refund(&self, state: &mut ExactNanos, now: Tick, cost: u64) {
        *state = self
            .bucket
            .pace
            .give_back(*state, ExactNanos::at(now), cost);
    }

    fn charge(&self, state: &mut ExactNanos, now: Tick, cost: u64) -> Duration {
        Duration::from_nanos(self.bucket.force(state, now, cost))
    }

    fn rescale(&self, state: &mut ExactNanos, from: &Self, now: Tick, inherit: Inherit) {
        let (pace, before) = (&self.bucket.pace, &from.bucket);
        let gone = before.used(*state, now);
        let up = |gone, ratio| pace.exchange(gone, &before.pace, ratio, Rounding::Up);
        let gone = match inherit {
            Inherit::Reset => {
                *state = self.fresh(now);
                return;
            }
            Inherit::Proportional => up(gone, (self.bucket.capacity, before.capacity)),
            Inherit::Additive => up(gone, (1, 1)),
            // The tokens stay, as many as fit, and so do those that are owed.
            Inherit::AsIs if gone <= before.depth => {
                let held = before.pace.sub(before.depth, gone);
                let held = pace.exchange(held, &before.pace, (1, 1), Rounding::Down);
                pace.sub(self.bucket.depth, held)
            }
            Inherit::AsIs => {
                let owed = before.pace.sub(gone, before.depth);
                pace.add(self.bucket.depth, up(owed, (1, 1)))
            }
        };
        *state = self.bucket.with_used(gone, now);
    }

    fn forgettable_at(&self, state: &ExactNanos) -> Tick {
        match self.missing_tokens() {
            0 => Tick::from_nanos(state.ceil()),
            _ => Tick::MAX,
        }
    }

    #[inline]
    fn pack(&self, state: &ExactNanos) -> Option<u64> {
        self.bucket.pace.pack(*state)
    }

    #[inline]
    fn unpack(&self, word: u64) -> ExactNanos {
        self.bucket.pace.unpack(word)
    }

    fn words(&self) -> usize {
        self.bucket.pace.words(self.bucket.depth)
    }

    #[inline]
    fn pack_into(&self, state: &ExactNanos, words: &mut [u64]) -> bool {
        self.bucket.pace.pack_into(*state, words)
    }

    #[inline]
    fn unpack_from(&self, words: &[u64]) -> ExactNanos {
        self.bucket.pace.unpack_from(words)
    }
}

impl From<Quota> for TokenBucket {
    fn from(quota: Quota) -> Self {
        Self::new(quota)
    }
}

/// For a store elsewhere that decides by a script.
#[cfg(feature = "redis")]
impl TokenBucket {
    /// The tokens of a key never seen, if not all.
    pub(crate) fn initial_tokens(&self) -> Option<u64> {
        self.initial.filter(|tokens| *tokens < self.bucket.capacity)
    }

    /// How many units may wait, and how long.
    pub(crate) fn line(&self) -> Option<(u64, u64)> {
        (self.queue > 0).then_some((self.queue, self.max_wait))
    }
}
