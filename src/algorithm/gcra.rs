//! The algorithm of the governor crate.

use std::{cell::Cell, num::NonZeroU32, time::Duration};

use governor::state::{NotKeyed, StateStore};
use governor::{RateLimiter, clock::Clock, middleware::NoOpMiddleware, nanos::Nanos};

use super::{Algorithm, Cost, Facts, GiveBack, Kernel, Level, Portable, Turns};
use super::{bucket::LONGEST, fields::Fields};
use crate::clock::{Tick, nanos};
use crate::decision::{Decision, Verdict};
use crate::error::{ConfigError, expect_valid};
use crate::quota::Quota;

/// The generic cell rate algorithm as the governor crate computes it.
///
/// For users who migrate from governor and need its decisions to the nanosecond. It works wherever
/// the other algorithms do. The arithmetic is governor's: the interval between cells is truncated
/// to whole nanoseconds, so a quota of 3 per second is one per 333,333,333 ns. [`TokenBucket`]
/// decides alike without truncating.
///
/// [`TokenBucket`]: crate::TokenBucket
///
#[cfg_attr(doc, doc = crate::picture::picture!(
    "algorithms/token_bucket.svg",
    "TokenBucket, and Gcra alike, and six kinds of traffic: a full bucket passes a burst at once, and then the rate is that of the limit."
))]
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
    /// The interval between cells, truncated as governor does.
    pub(crate) interval: u64,
    /// 1 to `u32::MAX`, the range of governor.
    pub(crate) burst: u64,
}

/// The state of a key under [`Gcra`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcraState {
    /// The theoretical arrival time, when the key is unused again; 0 if never seen.
    pub(crate) tat: u64,
}

/// The state during one decision.
struct SingleState(Cell<Option<Nanos>>);

/// Governor counts from the first reading of its clock, which is zero here.
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
    /// Cells at the quota's rate, with its burst, or its limit if no burst is set.
    ///
    /// # Panics
    /// If the burst is above 2^32 - 1, the range of governor. [`try_new`](Self::try_new) returns an
    /// error instead.
    #[track_caller]
    pub fn new(quota: Quota) -> Self {
        expect_valid(Self::try_new(quota))
    }

    /// [`new`](Self::new) for quotas from a configuration.
    ///
    /// # Errors
    /// If the burst is above 2^32 - 1, the range of governor.
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

    fn decision(
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
        state.tat.saturating_sub(now.as_nanos())
    }
}

impl Algorithm for Gcra {
    type State = GcraState;

    fn quota(&self) -> Quota {
        self.quota
    }

    #[inline]
    fn facts(&self) -> Facts {
        Facts::ONE_LIMIT
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
        // Above the capacity governor multiplies before it compares, and may wrap.
        let cells = u32::try_from(cost)
            .ok()
            .filter(|cost| u64::from(*cost) <= self.burst);
        let Some(cells) = cells.and_then(NonZeroU32::new) else {
            let verdict = if cost == 0 {
                Verdict::Admit
            } else {
                Verdict::Deny
            };
            return self.decision(verdict, *state, now, None);
        };
        let slot = SingleState(Cell::new((state.tat > 0).then(|| Nanos::new(state.tat))));
        let present = Nanos::new(now.as_nanos());
        let clock = FixedClock(Cell::new(Nanos::new(0)), present);
        let limiter: RateLimiter<_, _, _, NoOpMiddleware<Nanos>> =
            RateLimiter::new(self.governor, slot, clock);
        match limiter.check_n(cells) {
            Ok(Ok(())) => {
                if let Some(tat) = limiter.into_state_store().0.get() {
                    state.tat = tat.as_u64();
                }
                self.decision(Verdict::Admit, *state, now, None)
            }
            Ok(Err(not_until)) => {
                let wait = Nanos::from(not_until.wait_time_from(present)).as_u64();
                self.decision(Verdict::Deny, *state, now, Some(wait))
            }
            Err(_insufficient_capacity) => self.decision(Verdict::Deny, *state, now, None),
        }
    }

    fn refund(&self, state: &mut GcraState, now: Tick, cost: Cost, _: GiveBack) {
        let (cost, taken_at) = (cost.units, cost.at);
        // The refill has returned at most the time since then already.
        let given = self
            .interval
            .saturating_mul(cost)
            .saturating_sub(nanos(now.since(taken_at)));
        let floor = state.tat.min(now.as_nanos());
        state.tat = state.tat.saturating_sub(given).max(floor);
    }

    fn charge(&self, state: &mut GcraState, now: Tick, cost: u64) -> Duration {
        if cost > 0 {
            state.tat = state
                .tat
                .max(now.as_nanos())
                .saturating_add(self.interval.saturating_mul(cost))
                // Governor adds a whole burst to it without a check.
                .min(Tick::MAX.as_nanos());
        }
        let depth = self.interval * self.burst;
        Duration::from_nanos(Self::used(*state, now).saturating_sub(depth))
    }

    /// The cells that were used stay used, but no longer than before or than ten empty buckets need.
    fn rescale(&self, state: &mut GcraState, from: &Self, now: Tick) {
        let cells = u128::from(Self::used(*state, now)) * u128::from(self.interval);
        let used = u64::try_from(cells.div_ceil(u128::from(from.interval))).unwrap_or(u64::MAX);
        let longest = state
            .tat
            .max(now.as_nanos() + LONGEST * self.interval * self.burst);
        *state = self.fresh(now);
        if used > 0 {
            let tat = now.as_nanos().saturating_add(used).min(longest);
            state.tat = tat.min(Tick::MAX.as_nanos());
        }
    }

    fn forgettable_at(&self, state: &GcraState) -> Tick {
        Tick::from_nanos(state.tat)
    }
}

impl Portable for Gcra {
    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.tag(8);
        let mut quota = self.quota;
        fields.quota(&mut quota);
        match Self::try_new(quota) {
            Ok(built) => *self = built,
            Err(error) => fields.refuse(error),
        }
    }

    fn kernels(&self, _: Tick) -> Option<Vec<Kernel>> {
        Some(vec![Kernel::Level(Level {
            rate: 1,
            period: self.interval,
            ..Level::new(&self.quota, Turns::Never)
        })])
    }

    fn state_fields(&self, state: &mut GcraState, fields: &mut Fields<'_>) {
        fields.u64(&mut state.tat);
    }
}
