//! A steady outflow: as a meter that denies, or as a queue that delays.

use std::time::Duration;

use super::{Algorithm, Inherit, at_most::AtMost, bucket::Bucket, pace::Due};
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

/// When a request of cost n pays for its n places in the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Charge {
    /// It goes when its turn comes, and the next one waits n intervals for it.
    #[default]
    After,
    /// It waits out its own n intervals first.
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
    pub const fn charge(mut self, charge: Charge) -> Self {
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

    /// A place in line for `cost`, if its turn comes within `most`.
    fn line_up(&self, state: &mut Due, now: Tick, cost: u64, most: Due) -> Decision {
        let present = Due::at(now);
        let mut free = (*state).max(present);
        let mut verdict = Verdict::Admit;
        let mut retry_after = None;
        if cost > 0 {
            let after = self.bucket.pace.add(free, self.bucket.pace.span(cost));
            let turn = match self.charge {
                Charge::After => free,
                Charge::Before => after,
            };
            let wait = self.bucket.pace.sub(turn, present);
            if wait <= most {
                verdict = Verdict::after(wait.ceil());
                free = after;
                *state = after;
            } else {
                verdict = Verdict::Deny;
                retry_after = Some(self.bucket.pace.sub(wait, most).ceil());
            }
        }
        self.line_answer(verdict, free, now, retry_after)
    }

    fn line_answer(
        &self,
        verdict: Verdict,
        free: Due,
        now: Tick,
        retry_after: Option<u64>,
    ) -> Decision {
        let reset_after = free.after(now);
        let remaining = if reset_after == 0 { self.capacity() } else { 0 };
        Decision::new(
            verdict,
            self.capacity(),
            remaining,
            retry_after,
            reset_after,
        )
    }

    /// How long the wait may be for `cost` units to find room among `units` waiting ones; `None` if
    /// that is never.
    fn longest_wait(&self, units: u64, cost: u64) -> Option<Due> {
        let places = match self.charge {
            // Its first unit goes at its turn, so that many wait ahead of the other ones.
            Charge::After => units.saturating_sub(cost.saturating_sub(1)),
            Charge::Before if cost > units => return None,
            Charge::Before => units,
        };
        Some(self.bucket.pace.span(places).min(Due {
            ns: self.max_wait,
            part: 0,
        }))
    }
}

impl Algorithm for LeakyBucket {
    type State = Due;

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
    fn fresh(&self, _now: Tick) -> Due {
        Due::default()
    }

    #[inline]
    fn decide(&self, state: &mut Due, now: Tick, cost: u64) -> Decision {
        let Some(units) = self.line else {
            return self.bucket.take(state, now, cost, Due::default());
        };
        match self.longest_wait(units, cost) {
            Some(most) if cost <= self.capacity() => self.line_up(state, now, cost, most),
            _ => self.line_answer(Verdict::Deny, *state, now, None),
        }
    }

    #[inline]
    fn keeps_line(&self) -> bool {
        true
    }

    /// Takes a place in line, for a meter too: the line and the level are one and the same.
    fn reserve(&self, state: &mut Due, now: Tick, cost: u64, max_wait: Duration) -> Decision {
        let most = Due {
            ns: nanos(max_wait),
            part: 0,
        };
        self.line_up(state, now, cost, most)
    }

    fn refund(&self, state: &mut Due, now: Tick, cost: u64) {
        *state = self.bucket.pace.give_back(*state, now, cost);
    }

    fn absorb(&self, state: &mut Due, now: Tick, cost: u64) -> Duration {
        let owed = self.bucket.force(state, now, cost);
        Duration::from_nanos(match self.line {
            None => owed,
            Some(_) => state.after(now),
        })
    }

    fn rescale(&self, state: &mut Due, from: &Self, now: Tick, inherit: Inherit) {
        let (pace, before) = (&self.bucket.pace, &from.bucket);
        *state = match (inherit, self.line) {
            (Inherit::Reset, _) => self.fresh(now),
            // Those who wait keep their turns.
            (_, Some(_)) => pace.convert(*state, &before.pace),
            (inherit, None) => {
                let used = before.used(*state, now);
                let (more, less) = match inherit {
                    Inherit::Proportional => (self.bucket.capacity, before.capacity),
                    _ => (1, 1),
                };
                let kept = pace.exchange(used, &before.pace, more, less);
                let kept = if used <= before.depth {
                    kept.min(self.bucket.depth)
                } else {
                    kept
                };
                self.bucket.using(kept, now)
            }
        };
    }

    fn forgettable_at(&self, state: &Due) -> Tick {
        Tick::from_nanos(state.ceil())
    }

    #[inline]
    fn pack(&self, state: &Due) -> Option<u64> {
        self.bucket.pace.pack(*state)
    }

    #[inline]
    fn unpack(&self, word: u64) -> Due {
        self.bucket.pace.unpack(word)
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
