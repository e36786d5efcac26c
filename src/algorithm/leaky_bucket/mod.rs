//! A steady outflow: as a meter that denies, or as a queue that delays.

mod charge;
mod line;

pub use self::charge::Charge;

use std::time::Duration;

use self::line::Line;
use super::fields::Fields;
use super::setting::{MAX_WAIT, Range, Setting};
use super::{
    Algorithm, Capabilities, Cost, ExactNanos, GiveBack, Kernel, Level, Turns, bucket::Bucket,
};
use crate::clock::{Tick, nanos};
use crate::decision::Decision;
use crate::quota::Quota;

/// A bucket that drains at L per W.
///
/// As a **meter** it mirrors [`TokenBucket`](crate::TokenBucket): a request of cost n adds n to the
/// level and passes if the level stays within B. Both decide alike.
///
/// As a **queue** ([`queue`](Self::queue)) it smooths traffic: requests of one key are released
/// t = W/L apart, first come first served, and idle time earns no credit.
///
/// ```text
/// 2 per second, queue(2) 0s        0.5s       1s        1.5s
/// requests               xxxx                             x
/// go                     ✓         ✓          ✓           ✓
/// denied                    ✗      (two wait, the fourth finds the line full)
/// ```
///
/// A request of cost n occupies n intervals. A queue accepts a cost of any size in its turn, so
/// that later requests wait for it; [`max_cost`](Self::max_cost) sets a bound.
///
#[cfg_attr(doc, doc = crate::picture::picture!(
    "algorithms/leaky_bucket.svg",
    "LeakyBucket and six kinds of traffic: a queue releases requests evenly, at the rate of the limit."
))]
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{LeakyBucket, Limiter, ManualClock, Quota, Verdict};
///
/// let bucket = LeakyBucket::new(Quota::per_second(2)).queue(2);
/// let limiter = Limiter::new(bucket).with_clock(ManualClock::new());
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
    pub(crate) queue_limit: Option<u64>,
    pub(crate) max_wait: u64,
    max_cost: Option<u64>,
    pub(crate) charge_mode: Charge,
}

/// Of zero too: then requests are released at their distance.
static LINE: Setting = Setting::count("queue", Range::Units(0));
static MAX_COST: Setting = Setting::count("max_cost", Range::Units(1)).needs("queue");
static CHARGE: Setting = Setting::one_of("charge", &["after", "before"]).needs("queue");

impl LeakyBucket {
    /// A meter of the quota's [burst](Quota::burst), or of its limit if no burst is set.
    pub const fn new(quota: Quota) -> Self {
        Self {
            bucket: Bucket::new(&quota),
            quota,
            queue_limit: None,
            max_wait: u64::MAX,
            max_cost: None,
            charge_mode: Charge::After,
        }
    }

    /// Makes it a queue: requests wait for their turn, at most `units` of cost at a time.
    #[must_use]
    pub const fn queue(mut self, units: u64) -> Self {
        self.queue_limit = Some(units);
        self
    }

    /// Denies a request at once if its turn would come later than this, and one that others overtake when it has
    /// waited for so long. Needs a [`queue`](Self::queue).
    #[must_use]
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = nanos(max_wait);
        self
    }

    /// Denies a request that costs more than `units`, without `retry_after`. Needs a
    /// [`queue`](Self::queue).
    ///
    /// ```
    /// use tower_throttle::{LeakyBucket, Limiter, Quota};
    ///
    /// let line = LeakyBucket::new(Quota::per_second(2)).queue(20);
    /// assert!(Limiter::new(line).check_n(1_000).is_admitted());
    /// assert!(Limiter::new(line.max_cost(100)).check_n(1_000).is_denied());
    /// ```
    #[must_use]
    pub const fn max_cost(mut self, units: u64) -> Self {
        self.max_cost = Some(units);
        self
    }

    /// When a request of cost above one pays. Needs a [`queue`](Self::queue).
    #[must_use]
    pub const fn charge_mode(mut self, charge: Charge) -> Self {
        self.charge_mode = charge;
        self
    }

    /// The limit that decisions report, and the largest cost that is ever admitted.
    pub(crate) fn capacity_and_max_cost(&self) -> (u64, u64) {
        match (self.queue_limit, self.max_cost) {
            (None, _) => (self.bucket.capacity, self.bucket.capacity),
            (Some(units), None) => (units.max(self.bucket.capacity), u64::MAX),
            (Some(_), Some(most)) => (most, most),
        }
    }

    /// The line; that of a meter is as long as its level.
    fn line(&self) -> Line {
        let (capacity, max_cost) = self.capacity_and_max_cost();
        Line {
            interval: self.bucket.interval,
            capacity,
            max_cost,
            charge: self.charge_mode,
        }
    }
}

impl Algorithm for LeakyBucket {
    type State = ExactNanos;

    fn quota(&self) -> Quota {
        self.quota
    }

    #[inline]
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            waiting: 1,
            queue: self.queue_limit.unwrap_or(0),
            max_wait: Duration::from_nanos(self.max_wait),
            ..Capabilities::ONE_LIMIT
        }
    }

    #[inline]
    fn fresh(&self, _now: Tick) -> ExactNanos {
        ExactNanos::ZERO
    }

    #[inline]
    fn decide(&self, state: &mut ExactNanos, now: Tick, cost: u64) -> Decision {
        let Some(units) = self.queue_limit else {
            return self.bucket.take(state, now, cost, ExactNanos::ZERO);
        };
        let line = self.line();
        let most = line.longest_wait(units, self.max_wait, cost);
        line.schedule(state, now, cost, most)
    }

    /// Reserves a turn in the line. The line of a meter is as long as its level.
    fn reserve(
        &self,
        state: &mut ExactNanos,
        now: Tick,
        cost: u64,
        max_wait: Duration,
    ) -> Decision {
        let most = ExactNanos::from_nanos(nanos(max_wait));
        let decision = self.line().schedule(state, now, cost, most);
        match self.queue_limit {
            Some(_) => decision,
            None => decision.with_figures_of(&self.peek(state, now, 0)),
        }
    }

    fn take_turn(&self, state: &mut ExactNanos, at: Tick, cost: u64) -> Decision {
        if self.queue_limit.is_none() {
            return self.bucket.take_turn(state, at, cost);
        }
        let exact = self.line().start_and_next(*state, Tick::ZERO, cost).0;
        let decision = self.line().schedule(state, at, cost, ExactNanos::ZERO);
        self.bucket.interval.correct(state, &decision, exact, at);
        decision
    }

    fn expected_wait(
        &self,
        state: &ExactNanos,
        at: Tick,
        ahead: u64,
        cost: u64,
    ) -> Option<Duration> {
        if self.queue_limit.is_none() {
            return self.bucket.expected_wait(*state, at, ahead, cost);
        }
        let mut next = match ahead {
            0 => *state,
            _ => self.line().start_and_next(*state, at, ahead).1,
        };
        self.line()
            .schedule(&mut next, at, cost, ExactNanos::NEVER)
            .wait()
    }

    fn refund(&self, state: &mut ExactNanos, now: Tick, cost: Cost, why: GiveBack) {
        let cost = cost.of_line(self.queue_limit.is_some(), now, why);
        let (interval, unused) = (&self.bucket.interval, self.line().idle_since(now));
        *state = interval.apply_refund(*state, unused, cost, now);
    }

    fn charge(&self, state: &mut ExactNanos, now: Tick, cost: u64) -> Duration {
        if self.queue_limit.is_none() {
            return Duration::from_nanos(self.bucket.charge(state, now, cost));
        }
        if cost > 0 {
            *state = self.line().start_and_next(*state, now, cost).1;
        }
        Duration::from_nanos(state.nanos_since(now))
    }

    /// Every queued request keeps its position; the requests before it go at the new rate.
    fn rescale(&self, state: &mut ExactNanos, from: &Self, now: Tick) {
        let (interval, before) = (&self.bucket.interval, &from.bucket);
        *state = match self.queue_limit {
            None => self.bucket.convert(*state, before, now),
            Some(_) if *state <= ExactNanos::from_tick(now) => {
                interval.convert_moment(*state, &before.interval)
            }
            Some(_) => {
                let line = interval.convert(before.used(*state, now), &before.interval);
                self.bucket.with_used(line, now)
            }
        };
    }

    fn forgettable_at(&self, state: &ExactNanos) -> Tick {
        Tick::from_nanos(self.line().idle_from(*state).ceil())
    }

    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.tag(5);
        fields.quota(&mut self.quota);
        fields.setting(&LINE, &mut self.queue_limit);
        fields.setting_or(&MAX_WAIT, &mut self.max_wait, u64::MAX);
        fields.setting(&MAX_COST, &mut self.max_cost);
        let mut pays_before = self.charge_mode == Charge::Before;
        fields.flag(&CHARGE, &mut pays_before);
        self.charge_mode = if pays_before {
            Charge::Before
        } else {
            Charge::After
        };
        self.bucket = Bucket::new(&self.quota);
        let turns = match self.charge_mode {
            Charge::Before => Turns::Before,
            Charge::After => Turns::After,
        };
        let (capacity, max_cost) = self.capacity_and_max_cost();
        fields.kernel(|_| {
            Kernel::Level(Level {
                capacity,
                max_cost,
                places: self.queue_limit,
                max_wait: self.max_wait,
                ..Level::new(&self.quota, turns)
            })
        });
    }

    fn state_fields(&self, state: &mut ExactNanos, fields: &mut Fields<'_>) {
        self.bucket.interval.state_fields(state, fields);
    }
}

impl From<Quota> for LeakyBucket {
    fn from(quota: Quota) -> Self {
        Self::new(quota)
    }
}
