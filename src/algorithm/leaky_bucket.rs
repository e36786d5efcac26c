//! A steady outflow: as a meter that denies, or as a queue that delays.

use std::time::Duration;

use super::{
    Algorithm, Inherit,
    at_most::AtMost,
    bucket::Bucket,
    interval::{ExactNanos, Rounding},
};
use crate::clock::{Tick, nanos};
use crate::decision::{Decision, Verdict};
use crate::error::ConfigError;
use crate::quota::Quota;

/// A bucket that drains at L per W.
///
/// As a **meter** it is the mirror of [`TokenBucket`](crate::TokenBucket): a request of cost n pours
/// n in and passes if the level stays within B. The two decide alike; they differ in what a change
/// of quota keeps (the meter keeps what is used, the token bucket what is left).
///
/// As a **queue** ([`queue`](Self::queue)) it smooths instead: requests of one key go t = W/L
/// apart, first come first served, and idle time earns no credit.
///
/// ```text
/// 2 a second, queue(2)   0s        0.5s       1s        1.5s
/// requests               xxxx                             x
/// go                     ✓         ✓          ✓           ✓
/// denied                    ✗      (two waited, the fourth found the line full)
/// ```
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{LeakyBucket, Limiter, ManualClock, Quota, Verdict};
///
/// let bucket = LeakyBucket::new(Quota::per_second(2)).queue(2);
/// let limiter = Limiter::with_clock(bucket, ManualClock::new());
/// assert_eq!(limiter.check().verdict, Verdict::Admit);
/// assert_eq!(limiter.check().verdict, Verdict::Wait(Duration::from_millis(500)));
/// assert_eq!(limiter.check().verdict, Verdict::Wait(Duration::from_secs(1)));
/// assert_eq!(limiter.check().retry_after, Some(Duration::from_millis(500)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    quota: Quota,
    bucket: Bucket,
    /// How many units may wait; `None` for a meter.
    line: Option<u64>,
    max_wait: u64,
    charge: Charge,
}

/// Who waits for a request of cost n in a line: the one behind it, or the request itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Charge {
    /// It goes as soon as the line is free, and the next one goes n intervals after it.
    #[default]
    After,
    /// It goes n intervals after the one before it, whatever that one cost.
    Before,
}

impl LeakyBucket {
    /// A meter of the quota's [burst](Quota::burst), or its limit where none was given.
    pub const fn new(quota: Quota) -> Self {
        Self {
            bucket: Bucket::new(&quota),
            quota,
            line: None,
            max_wait: u64::MAX,
            charge: Charge::After,
        }
    }

    /// "Never more than `n` in any period": see [`AtMost::in_any`].
    pub const fn at_most(n: u64) -> AtMost<Self> {
        AtMost::new(n)
    }

    /// Makes it a queue: requests wait for their turn, at most `units` of cost at a time.
    #[must_use]
    pub const fn queue(mut self, units: u64) -> Self {
        self.line = Some(units);
        self
    }

    /// Denies at once a request whose turn would come later than this.
    #[must_use]
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = nanos(max_wait);
        self
    }

    /// When a request of cost above one pays for its places.
    #[must_use]
    pub const fn charge_mode(mut self, charge: Charge) -> Self {
        self.charge = charge;
        self
    }

    /// The most that an idle key is granted at once.
    const fn capacity(&self) -> u64 {
        match self.line {
            Some(units) if units > self.quota.capacity() => units,
            _ => self.quota.capacity(),
        }
    }

    /// When a request of `cost` would go, and when the line is free for one of cost 1 after it.
    ///
    /// An unused line has never been free "since": there, whatever comes goes at once. One that has
    /// rested until it may be forgotten is an unused one, whatever is asked of it.
    fn turn(&self, state: ExactNanos, now: Tick, cost: u64) -> (ExactNanos, ExactNanos) {
        let (present, pace) = (ExactNanos::at(now), &self.bucket.pace);
        match self.charge {
            Charge::After => {
                let turn = state.max(present);
                (turn, pace.add(turn, pace.span(cost)))
            }
            Charge::Before => {
                let turn = match (state, cost) {
                    (ExactNanos::ZERO, _) | (_, 0) => present,
                    (free, _) if self.idle_from(free) <= present => present,
                    (free, cost) => pace.add(free, pace.span(cost - 1)).max(present),
                };
                (turn, pace.add(turn, pace.span(1)))
            }
        }
    }

    /// A place in line for `cost`, if its turn comes within `most`.
    fn line_up(&self, state: &mut ExactNanos, now: Tick, cost: u64, most: ExactNanos) -> Decision {
        let (turn, free) = self.turn(*state, now, cost);
        if cost == 0 {
            return self.queue_decision(Verdict::Admit, *state, now, None);
        }
        let wait = self.bucket.pace.sub(turn, ExactNanos::at(now));
        if wait <= most {
            *state = free;
            self.queue_decision(Verdict::after(wait.ceil()), free, now, None)
        } else {
            // More than the capacity goes when the line is one never used.
            let retry_after = self.bucket.pace.sub(wait, most).ceil();
            let retry_after = retry_after.min(self.idle_from(*state).after(now));
            self.queue_decision(Verdict::Deny, *state, now, Some(retry_after))
        }
    }

    /// How long a free line rests until it is as good as an unused one.
    fn rest(&self) -> ExactNanos {
        match self.charge {
            Charge::After => ExactNanos::ZERO,
            Charge::Before => self.bucket.pace.span(self.capacity() - 1),
        }
    }

    /// When a line of this state is as good as an unused one.
    fn idle_from(&self, state: ExactNanos) -> ExactNanos {
        self.bucket.pace.add(state, self.rest())
    }

    /// The latest state that is as good as an unused one at `now`.
    fn idle_since(&self, now: Tick) -> ExactNanos {
        self.bucket.pace.sub(ExactNanos::at(now), self.rest())
    }

    fn queue_decision(
        &self,
        verdict: Verdict,
        state: ExactNanos,
        now: Tick,
        retry_after: Option<u64>,
    ) -> Decision {
        let (capacity, present) = (self.capacity(), ExactNanos::at(now));
        let remaining = match self.charge {
            Charge::After if state <= present => capacity,
            // One for the free line, and one for each interval since.
            Charge::Before if state == ExactNanos::ZERO => capacity,
            Charge::Before if state <= present => {
                let since = self.bucket.pace.sub(present, state);
                self.bucket
                    .pace
                    .count(since)
                    .saturating_add(1)
                    .min(capacity)
            }
            _ => 0,
        };
        let reset_after = self.turn(state, now, capacity).0.after(now);
        Decision::new(verdict, capacity, remaining, retry_after, reset_after)
    }

    /// How long the wait may be for `cost` units to find room among `units` waiting ones.
    fn longest_wait(&self, units: u64, cost: u64) -> ExactNanos {
        let places = match self.charge {
            // Its first unit goes at its turn, the others take the places behind it.
            Charge::After => units.saturating_sub(cost.saturating_sub(1)),
            Charge::Before => units,
        };
        self.bucket.pace.span(places).min(ExactNanos {
            ns: self.max_wait,
            part: 0,
        })
    }
}

impl Algorithm for LeakyBucket {
    type State = ExactNanos;

    fn quota(&self) -> Quota {
        self.quota
    }

    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        Ok(Self {
            line: self.line,
            max_wait: self.max_wait,
            charge: self.charge,
            ..Self::new(quota)
        })
    }

    #[inline]
    fn fresh(&self, _now: Tick) -> ExactNanos {
        ExactNanos::ZERO
    }

    #[inline]
    fn decide(&self, state: &mut ExactNanos, now: Tick, cost: u64) -> Decision {
        let Some(units) = self.line else {
            return self.bucket.take(state, now, cost, ExactNanos::ZERO);
        };
        if cost > self.capacity() {
            return self.queue_decision(Verdict::Deny, *state, now, None);
        }
        self.line_up(state, now, cost, self.longest_wait(units, cost))
    }

    #[inline]
    fn keeps_line(&self) -> bool {
        true
    }

    #[inline]
    fn replans_line(&self) -> bool {
        true
    }

    /// Takes a place in line, for a meter too: the line and the level are one and the same.
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
        let decision = self.line_up(state, now, cost, most);
        match self.line {
            Some(_) => decision,
            None => decision.with_figures_of(&self.peek(state, now, 0)),
        }
    }

    fn refund(&self, state: &mut ExactNanos, now: Tick, cost: u64) {
        *state = self
            .bucket
            .pace
            .give_back(*state, self.idle_since(now), cost);
    }

    fn charge(&self, state: &mut ExactNanos, now: Tick, cost: u64) -> Duration {
        if self.line.is_none() {
            return Duration::from_nanos(self.bucket.force(state, now, cost));
        }
        if cost > 0 {
            *state = self.turn(*state, now, cost).1;
        }
        Duration::from_nanos(state.after(now))
    }

    fn rescale(&self, state: &mut ExactNanos, from: &Self, now: Tick, inherit: Inherit) {
        let (pace, before) = (&self.bucket.pace, &from.bucket);
        *state = match (inherit, self.line) {
            (Inherit::Reset, _) => self.fresh(now),
            (_, Some(_)) if *state <= ExactNanos::at(now) => pace.convert(*state, &before.pace),
            // Those who wait have as many before them as they had, and those go at the new pace.
            (_, Some(_)) => {
                let used = before.used(*state, now);
                let kept = pace.exchange(used, &before.pace, (1, 1), Rounding::Up);
                self.bucket.with_used(kept, now)
            }
            (inherit, None) => {
                let used = before.used(*state, now);
                let ratio = match inherit {
                    Inherit::Proportional => (self.bucket.capacity, before.capacity),
                    _ => (1, 1),
                };
                let kept = pace.exchange(used, &before.pace, ratio, Rounding::Up);
                self.bucket.with_used(kept, now)
            }
        };
    }

    fn forgettable_at(&self, state: &ExactNanos) -> Tick {
        Tick::from_nanos(self.idle_from(*state).ceil())
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

impl From<Quota> for LeakyBucket {
    fn from(quota: Quota) -> Self {
        Self::new(quota)
    }
}

/// For a store elsewhere that decides by a script.
#[cfg(feature = "redis")]
impl LeakyBucket {
    /// How many units may wait if it is a queue, how long, and when they pay.
    pub(crate) const fn line(&self) -> (Option<u64>, u64, Charge) {
        (self.line, self.max_wait, self.charge)
    }
}
