//! A rate that rises while it is used and falls while it is idle.

use std::time::Duration;

use super::fields::{self, Fields};
use super::interval::{Interval, low_u64};
use super::setting::{Range, Setting};
use super::{Algorithm, Capabilities, Cost, ExactNanos, GiveBack, Turns};
use crate::clock::{Tick, nanos};
use crate::decision::{Decision, Verdict};
use crate::error::{ConfigError, expect_valid};
use crate::quota::Quota;

/// From a cold start at L/cold per W up to L per W, as a cache fills or a pool connects.
///
/// Idle time is stored as permits. Permits above a threshold cost more time, because a service that
/// was idle is cold and slow. With s = W/L, the interval of a warm service, f the
/// [cold factor](Self::cold_factor) and w the warm-up time:
///
/// ```text
/// interval
///   f*s |                       /    threshold = w / 2s
///       |                     / |    full      = threshold + 2w / (s + f*s)
///     s |-------------------/   |    the triangle is the extra time of a warm-up
///       +-------------------+---+--  stored permits
///       0           threshold   full
/// ```
///
/// A request of cost n takes n stored permits and costs the area below the curve over them. It is
/// released as soon as the line is free, and the *next* request waits for that time. So the first
/// request of a cold service is released at once, regardless of its cost. While no request comes, permits
/// are refilled so that an empty store is full after w.
///
/// A request that would have to wait is denied, unless the layer has a [queue](crate::RateLimitLayer::queue).
///
/// # Arithmetic
/// With a(p) the permits above the threshold of a store of p, the time of a cost is
/// `n * s + extra(a(before)) - extra(a(after))`, where `extra(a)` is the area of the triangle up to
/// a, in whole nanoseconds rounded down. The first term is exact. The second one telescopes, so
/// rounding errors do not add up.
///
#[cfg_attr(doc, doc = crate::picture::picture!(
    "algorithms/warm_up.svg",
    "WarmUp and six kinds of traffic: the rate begins at a third of the limit and rises to the limit within the warm-up time."
))]
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{Limiter, ManualClock, Quota, WarmUp};
///
/// let policy = WarmUp::new(Quota::per_second(2), Duration::from_secs(4));
/// let limiter = Limiter::new(policy).with_clock(ManualClock::new());
/// let waits = [(); 3].map(|()| limiter.reserve(1, Duration::MAX).wait());
/// assert_eq!(waits, [0, 1_375, 2_500].map(|ms| Some(Duration::from_millis(ms))));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarmUp {
    quota: Quota,
    interval: Interval,
    /// How long from cold to warm, in nanoseconds.
    length: u64,
    /// How many times slower than warm a cold key is.
    cold_factor: u64,
    // The figures of the store, in units that make each of them a whole number.
    /// Units per permit.
    permit: u64,
    /// Units that come back per nanosecond.
    refill: u64,
    /// Units of a full store.
    capacity: u64,
    /// Units of it that are above the threshold.
    above: u64,
}

/// The state of a key under [`WarmUp`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WarmUpState {
    /// Units that are taken from a full store. More than all of it is kept too, so that a refund gives back as
    /// much as was taken, until idle time is stored.
    used: u64,
    /// When the line is free again.
    next_free: ExactNanos,
}

const WARM_UP_RANGE: &str = "a shorter time, or fewer units per second, or a smaller cold factor";

static WARM_UP: Setting = Setting::time("warm_up", Range::Span).required();
static COLD_FACTOR: Setting = Setting::count("cold_factor", Range::Number(1, 1_000));

impl WarmUp {
    /// Warms up over `warm_up` to the quota's rate, three times slower when cold. A quota with a
    /// burst is refused when a limiter is built.
    ///
    /// # Panics
    /// If `warm_up` is zero, above 10 years, or too long for the limit.
    #[track_caller]
    pub fn new(quota: Quota, warm_up: Duration) -> Self {
        expect_valid(Self::try_new(quota, warm_up))
    }

    pub(crate) fn try_new(quota: Quota, warm_up: Duration) -> Result<Self, ConfigError> {
        Self::build(quota, nanos(warm_up), 3)
    }

    /// How many times slower than warm a cold key is.
    ///
    /// # Panics
    /// If `factor` is 0 or above 1,000.
    #[must_use]
    #[track_caller]
    pub fn cold_factor(self, factor: u64) -> Self {
        expect_valid(fields::set(self, COLD_FACTOR.name, factor))
    }

    fn build(quota: Quota, warm_up: u64, cold_factor: u64) -> Result<Self, ConfigError> {
        WARM_UP.check(warm_up, &quota)?;
        let refused = || WARM_UP.refuse(warm_up, WARM_UP_RANGE);
        let [period, limit] = [quota.period_ns(), quota.limit()].map(u128::from);
        let [warm, factor] = [warm_up, cold_factor].map(u128::from);
        // Below 2^59 * 2^53 * 2^11.
        let area = warm * limit;
        let figures = [
            2 * period * (1 + factor),
            limit * (5 + factor),
            area * (5 + factor),
            area * 4,
        ];
        let common = figures.into_iter().fold(0, gcd);
        let [permit, refill, capacity, above] =
            figures.map(|figure| u64::try_from(figure / common));
        let (Ok(refill), Ok(capacity), Ok(above)) = (refill, capacity, above) else {
            return Err(refused());
        };
        // Then no product in `cold_penalty` exceeds 128 bits.
        let time = warm.saturating_mul(factor + 1);
        u128::from(above)
            .checked_mul(2 * time)
            .ok_or_else(refused)?;
        Ok(Self {
            interval: Interval::new(&quota),
            quota,
            length: warm_up,
            cold_factor,
            // One that is worth more than all that is stored takes all of it.
            permit: permit.unwrap_or(u64::MAX),
            refill,
            capacity,
            above,
        })
    }

    /// The state with the idle time up to `now` stored.
    #[inline]
    fn refilled(&self, state: WarmUpState, now: Tick) -> WarmUpState {
        let present = ExactNanos::from_tick(now);
        if state.next_free >= present {
            return state;
        }
        // A fraction of a nanosecond that has begun is not stored.
        let idle = now.as_nanos() - state.next_free.ceil();
        let back = idle.saturating_mul(self.refill);
        WarmUpState {
            used: state.used.min(self.capacity).saturating_sub(back),
            next_free: present,
        }
    }

    /// Takes `cost` from a refilled state.
    fn consume(&self, state: WarmUpState, cost: u64) -> WarmUpState {
        let used = state.used.saturating_add(cost.saturating_mul(self.permit));
        let price = self.price(cost, state.used, used);
        let next_free = self.interval.add(state.next_free, price);
        WarmUpState { used, next_free }
    }

    /// The time of a cost that takes the store from `before` to `after`.
    fn price(&self, cost: u64, before: u64, after: u64) -> ExactNanos {
        let penalty = self.cold_penalty(before) - self.cold_penalty(after);
        let time = self.interval.time_for(cost);
        self.interval.add(time, ExactNanos::from_nanos(penalty))
    }

    /// The area of the triangle over what is stored, in whole nanoseconds:
    /// `floor((f - 1) * w * left^2 / ((f + 1) * above^2))`, divided by `above` twice.
    #[inline]
    fn cold_penalty(&self, used: u64) -> u64 {
        let left = u128::from(self.above.saturating_sub(used));
        if left == 0 || self.cold_factor == 1 {
            return 0;
        }
        let [above, factor, warm_up] = [self.above, self.cold_factor, self.length].map(u128::from);
        let time = (factor - 1) * warm_up * left;
        let once = time / above * left + time % above * left / above;
        low_u64(once / ((factor + 1) * above))
    }

    #[inline]
    fn decision(
        &self,
        verdict: Verdict,
        state: WarmUpState,
        now: Tick,
        retry_after: Option<u64>,
    ) -> Decision {
        let limit = self.quota.limit();
        let reset_after = state.next_free.nanos_since(now);
        let remaining = if reset_after == 0 { limit } else { 0 };
        Decision::new(verdict, limit, remaining, retry_after, reset_after)
    }
}

const fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Algorithm for WarmUp {
    type State = WarmUpState;

    fn quota(&self) -> Quota {
        self.quota
    }

    #[inline]
    fn capabilities(&self) -> Capabilities {
        Capabilities::with_turns(Turns::Booked)
    }

    #[inline]
    fn fresh(&self, _now: Tick) -> WarmUpState {
        WarmUpState::default()
    }

    /// Takes `cost` if the line is free.
    #[inline]
    fn decide(&self, state: &mut WarmUpState, now: Tick, cost: u64) -> Decision {
        if cost == 0 {
            return self.decision(Verdict::Admit, *state, now, None);
        }
        let refilled = self.refilled(*state, now);
        let wait = self
            .interval
            .sub(refilled.next_free, ExactNanos::from_tick(now));
        if wait > ExactNanos::ZERO {
            return self.decision(Verdict::Deny, refilled, now, Some(wait.ceil()));
        }
        *state = self.consume(refilled, cost);
        self.decision(Verdict::Admit, *state, now, None)
    }

    fn take_turn(&self, state: &mut WarmUpState, at: Tick, cost: u64) -> Decision {
        let exact = state.next_free;
        let decision = self.decide(state, at, cost);
        self.interval.correct(&mut state.next_free, exact, at);
        decision
    }

    /// Puts the permits back, and frees the line of what is left of the time that they cost; of a turn that is not
    /// used only if it is the last. Nothing is left after the time of a warm service: until then the line was not
    /// free since the cost was taken, so that the store says what it cost.
    fn refund(&self, state: &mut WarmUpState, now: Tick, cost: Cost, why: GiveBack) {
        *state = self.refilled(*state, now);
        let since = ExactNanos::from_nanos(nanos(now.since(cost.at)));
        if since >= self.interval.time_for(cost.units) {
            return;
        }
        // If they were more than can be counted, none are put back.
        let back = match state.used {
            u64::MAX => 0,
            _ => cost.units.saturating_mul(self.permit),
        };
        let used = state.used.saturating_sub(back);
        let price = self.price(cost.units, used, state.used);
        let before = self.interval.sub(state.next_free, price);
        if cost.is_due(now, why, |turn| before <= ExactNanos::from_tick(turn)) {
            let earlier = self.interval.add(before, since);
            let unused = ExactNanos::from_tick(now).min(state.next_free);
            let next_free = earlier.max(unused);
            *state = WarmUpState { used, next_free };
        }
    }

    fn charge(&self, state: &mut WarmUpState, now: Tick, cost: u64) -> Duration {
        if cost > 0 {
            *state = self.consume(self.refilled(*state, now), cost);
        }
        Duration::from_nanos(state.next_free.nanos_since(now))
    }

    /// Stored permits mean something only under the settings that stored them: with others the service
    /// is cold. Queued requests keep their turns.
    fn rescale(&self, state: &mut WarmUpState, from: &Self, _now: Tick) {
        let layout = |one: &Self| (one.quota, one.length, one.cold_factor);
        if layout(self) != layout(from) {
            state.next_free = ExactNanos::from_nanos(state.next_free.ceil());
            state.used = 0;
        }
    }

    fn forgettable_at(&self, state: &WarmUpState) -> Tick {
        // A fresh key is cold. So is this one when its store is full.
        let cooling = state.used.min(self.capacity).div_ceil(self.refill);
        Tick::from_nanos(state.next_free.ceil().saturating_add(cooling))
    }

    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.tag(7);
        let mut new = *self;
        fields.plain_quota(&mut new.quota);
        fields.setting_or(&WARM_UP, &mut new.length, 0);
        fields.setting_or(&COLD_FACTOR, &mut new.cold_factor, 3);
        match Self::build(new.quota, new.length, new.cold_factor) {
            Ok(built) => *self = built,
            Err(error) => fields.refuse(error),
        }
    }

    fn state_fields(&self, state: &mut WarmUpState, fields: &mut Fields<'_>) {
        fields.u64(&mut state.used);
        self.interval.state_fields(&mut state.next_free, fields);
    }
}
