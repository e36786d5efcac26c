//! Decisions by the governor crate, as one more algorithm.

use std::{cell::Cell, num::NonZeroU32, time::Duration};

use governor::state::{NotKeyed, StateStore};
use governor::{RateLimiter, clock::Clock, middleware::NoOpMiddleware, nanos::Nanos};

use super::{Algorithm, Inherit};
use crate::clock::Tick;
use crate::decision::{Decision, Verdict};
use crate::error::ConfigError;
use crate::quota::Quota;

/// The generic cell rate algorithm as the governor crate computes it.
///
/// For users who come from governor and want its decisions to the nanosecond, in every place where
/// the other algorithms work. Its arithmetic is governor's: the interval between cells is cut to
/// whole nanoseconds, so a quota of 3 a second is one each 333,333,333 ns. [`TokenBucket`] decides
/// the same without the cut.
///
/// [`TokenBucket`]: crate::TokenBucket
///
/// ```
/// use tower_throttle::{Gcra, Limiter, Quota};
///
/// let limiter = Limiter::new(Gcra::new(Quota::per_hour(2).burst(1)));
/// assert!(limiter.check().is_admitted());
/// assert!(limiter.check().is_denied());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gcra {
    quota: Quota,
    governor: governor::Quota,
    /// The interval between cells, as governor has it.
    interval: u64,
    /// 1 to `u32::MAX`, all that governor can count.
    burst: u64,
}

/// What [`Gcra`] remembers of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcraState {
    /// Governor's theoretical arrival time: when the key is unused again. 0 is "never seen".
    arrival: u64,
}

/// One state, for the length of one decision.
struct SingleState(Cell<Option<Nanos>>);

/// Governor counts from the first reading of its clock: zero, so that it counts as we do.
struct FixedClock(Cell<Nanos>, Nanos);

impl StateStore for SingleState {
    type Key = NotKeyed;

    fn measure_and_replace<T, F, E>(&self, _key: &NotKeyed, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let (outcome, next) = decide(self.0.get())?;
        self.0.set(Some(next));
        Ok(outcome)
    }
}

impl Clock for FixedClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        self.0.replace(self.1)
    }
}

impl Gcra {
    /// Cells at the quota's rate, with its burst (or its limit where none was given).
    ///
    /// # Panics
    /// If the burst is above 2^32 - 1, more than governor counts; [`try_new`](Self::try_new)
    /// answers with an error instead.
    #[track_caller]
    pub fn new(quota: Quota) -> Self {
        Self::try_new(quota).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`new`](Self::new), for quotas that come from elsewhere.
    ///
    /// # Errors
    /// If the burst is above 2^32 - 1, more than governor counts.
    pub fn try_new(quota: Quota) -> Result<Self, ConfigError> {
        let interval = (quota.period_ns() / quota.limit()).max(1);
        let burst = u32::try_from(quota.capacity())
            .ok()
            .and_then(NonZeroU32::new);
        match (
            burst,
            governor::Quota::with_period(Duration::from_nanos(interval)),
        ) {
            (Some(burst), Some(rate)) => Ok(Self {
                quota,
                governor: rate.allow_burst(burst),
                interval,
                burst: u64::from(burst.get()),
            }),
            _ => Err(ConfigError::out_of_range(
                "burst",
                quota.capacity(),
                "a number from 1 to 4294967295",
            )),
        }
    }

    fn answer(
        &self,
        verdict: Verdict,
        state: GcraState,
        now: Tick,
        retry_after: Option<u64>,
    ) -> Decision {
        let used = Self::used(state, now);
        let depth = self.interval * self.burst;
        Decision::new(
            verdict,
            self.burst,
            depth.saturating_sub(used) / self.interval,
            retry_after,
            used,
        )
    }

    fn used(state: GcraState, now: Tick) -> u64 {
        state.arrival.saturating_sub(now.as_nanos())
    }
}

impl Algorithm for Gcra {
    type State = GcraState;

    fn quota(&self) -> Quota {
        self.quota
    }

    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        Self::try_new(quota)
    }

    #[inline]
    fn fresh(&self, _now: Tick) -> GcraState {
        GcraState::default()
    }

    #[inline]
    fn decide(&self, state: &mut GcraState, now: Tick, cost: u64) -> Decision {
        // Above its capacity governor multiplies before it looks, and may wrap.
        let cells = u32::try_from(cost)
            .ok()
            .filter(|cost| u64::from(*cost) <= self.burst);
        let Some(cells) = cells.and_then(NonZeroU32::new) else {
            let verdict = if cost == 0 {
                Verdict::Admit
            } else {
                Verdict::Deny
            };
            return self.answer(verdict, *state, now, None);
        };
        let slot = SingleState(Cell::new(
            (state.arrival > 0).then(|| Nanos::new(state.arrival)),
        ));
        let present = Nanos::new(now.as_nanos());
        let clock = FixedClock(Cell::new(Nanos::new(0)), present);
        let limiter: RateLimiter<_, _, _, NoOpMiddleware<Nanos>> =
            RateLimiter::new(self.governor, slot, clock);
        match limiter.check_n(cells) {
            Ok(Ok(())) => {
                if let Some(arrival) = limiter.into_state_store().0.get() {
                    state.arrival = arrival.as_u64();
                }
                self.answer(Verdict::Admit, *state, now, None)
            }
            Ok(Err(not_until)) => {
                let wait = Nanos::from(not_until.wait_time_from(present)).as_u64();
                self.answer(Verdict::Deny, *state, now, Some(wait))
            }
            Err(_insufficient_capacity) => self.answer(Verdict::Deny, *state, now, None),
        }
    }

    fn refund(&self, state: &mut GcraState, now: Tick, cost: u64) {
        let given = self.interval.saturating_mul(cost);
        let floor = state.arrival.min(now.as_nanos());
        state.arrival = state.arrival.saturating_sub(given).max(floor);
    }

    fn charge(&self, state: &mut GcraState, now: Tick, cost: u64) -> Duration {
        if cost > 0 {
            state.arrival = state
                .arrival
                .max(now.as_nanos())
                .saturating_add(self.interval.saturating_mul(cost))
                // Governor adds a whole burst to it without looking.
                .min(Tick::MAX.as_nanos());
        }
        let depth = self.interval * self.burst;
        Duration::from_nanos(Self::used(*state, now).saturating_sub(depth))
    }

    fn rescale(&self, state: &mut GcraState, from: &Self, now: Tick, inherit: Inherit) {
        let used = Self::used(*state, now) / from.interval;
        let left = from.burst.saturating_sub(used);
        let used = match inherit {
            Inherit::Reset => 0,
            Inherit::Proportional => used.saturating_mul(self.burst).div_ceil(from.burst),
            Inherit::Additive => used,
            Inherit::AsIs => self.burst.saturating_sub(left),
        };
        *state = self.fresh(now);
        self.charge(state, now, used);
    }

    fn forgettable_at(&self, state: &GcraState) -> Tick {
        Tick::from_nanos(state.arrival)
    }

    #[inline]
    fn pack(&self, state: &GcraState) -> Option<u64> {
        Some(state.arrival).filter(|arrival| *arrival < u64::MAX)
    }

    #[inline]
    fn unpack(&self, word: u64) -> GcraState {
        GcraState { arrival: word }
    }
}

/// For a store elsewhere that decides by a script.
#[cfg(feature = "redis")]
impl Gcra {
    /// The interval between cells in nanoseconds, and the burst.
    pub(crate) const fn cells(&self) -> (u64, u64) {
        (self.interval, self.burst)
    }

    pub(crate) const fn with_tat(arrival: u64) -> GcraState {
        GcraState { arrival }
    }
}
