//! The exact window: a log of admissions.

use std::time::Duration;

use super::fields::Fields;
use super::moments::Moments;
use super::window::decision;
use super::{Algorithm, Capabilities, Cost, GiveBack, Kernel, Turns};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::quota::Quota;

/// At most L in **every** interval of length W, exactly.
///
/// Keeps the moments of the admissions in the last W, at most L: 16 bytes per distinct moment, with
/// capacity for 4, 8, 16 and so on. Denied requests are not kept, so a client that keeps trying is
/// admitted again as soon as one that waits. A [`charge`](Algorithm::charge) to a key with L
/// moments joins the newest one, whose whole cost then expires a period after the charge. A refund of
/// a cost that was joined gives back older costs instead, if there are any that still count. So it frees
/// no more than was taken, but up to a period later.
///
/// ```text
/// limit 3     |······W······|
/// requests    x  x    x  x   x   x
/// admitted    ✓  ✓    ✓      ✓   ✓     each once the third request before it is W old
/// denied                 ✗
/// ```
///
#[cfg_attr(doc, doc = crate::picture::picture!(
    "algorithms/sliding_log.svg",
    "SlidingLog and six kinds of traffic: no second has more than the limit."
))]
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{Limiter, ManualClock, Quota, SlidingLog};
///
/// let clock = ManualClock::new();
/// let limiter = Limiter::new(SlidingLog::new(Quota::per_minute(2))).with_clock(clock.clone());
/// assert!(limiter.check(1).is_admitted());
/// clock.advance(Duration::from_secs(20));
/// assert!(limiter.check(1).is_admitted());
/// assert_eq!(limiter.check(1).retry_after, Some(Duration::from_secs(40)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    quota: Quota,
}

/// The state of a key under [`SlidingLog`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlidingLogState(Moments);

impl SlidingLog {
    /// At most the quota's limit in every period. A quota with a burst is refused when a limiter is
    /// built.
    pub const fn new(quota: Quota) -> Self {
        Self { quota }
    }

    /// How many moments are expired at `now`: exactly a period old or older.
    fn expired(&self, SlidingLogState(moments): &SlidingLogState, now: Tick) -> usize {
        moments.expired(now.as_nanos(), self.quota.period_ns())
    }

    /// The time until at most `most` counts, if the first `expired` moments do not.
    fn until(
        &self,
        SlidingLogState(moments): &SlidingLogState,
        expired: usize,
        most: u64,
        now: Tick,
    ) -> u64 {
        let excess = moments.cost_from(expired).saturating_sub(most);
        let last = moments.completes(expired, excess).filter(|_| excess > 0);
        last.map_or(0, |at| {
            (at + self.quota.period_ns()).saturating_sub(now.as_nanos())
        })
    }

    /// The decision on a state whose first `expired` moments are expired.
    fn decision(&self, state: &SlidingLogState, expired: usize, now: Tick, cost: u64) -> Decision {
        let used = state.0.cost_from(expired);
        let until = |most| self.until(state, expired, most, now);
        decision(self.quota.limit(), used, cost, until)
    }
}

impl Algorithm for SlidingLog {
    type State = SlidingLogState;

    fn quota(&self) -> Quota {
        self.quota
    }

    #[inline]
    fn capabilities(&self) -> Capabilities {
        Capabilities::with_turns(Turns::Repeat(self.quota.period_ns()))
    }

    fn fresh(&self, _now: Tick) -> SlidingLogState {
        SlidingLogState::default()
    }

    fn decide(&self, state: &mut SlidingLogState, now: Tick, cost: u64) -> Decision {
        let expired = self.expired(state, now);
        let decision = self.decision(state, expired, now, cost);
        if cost == 0 || decision.is_denied() {
            // A denial removes nothing: a request with an older `now` may still need the moments.
            return decision;
        }
        state.0.drop_oldest(expired);
        state.0.add(now.as_nanos(), cost);
        self.decision(state, 0, now, 0)
    }

    fn peek(&self, state: &SlidingLogState, now: Tick, cost: u64) -> Decision {
        self.decision(state, self.expired(state, now), now, cost)
    }

    fn refund(&self, state: &mut SlidingLogState, now: Tick, cost: Cost, _: GiveBack) {
        // Expired moments stay: a request with an older `now` may still need them.
        let kept = self.expired(state, now);
        state.0.take_back(kept, cost.at.as_nanos(), cost.units);
    }

    fn charge(&self, state: &mut SlidingLogState, now: Tick, cost: u64) -> Duration {
        let mut expired = self.expired(state, now);
        let SlidingLogState(moments) = state;
        let limit = self.quota.limit();
        let cost = cost.min(Tick::MAX.as_nanos() - moments.cost_from(expired));
        if cost > 0 {
            moments.drop_oldest(expired);
            expired = 0;
            // The charge to a full log joins the newest moment; otherwise the log would grow.
            if moments.len() as u64 >= limit {
                moments.join(now.as_nanos(), cost);
            } else {
                moments.add(now.as_nanos(), cost);
            }
        }
        Duration::from_nanos(self.until(state, expired, limit, now))
    }

    fn rescale(&self, state: &mut SlidingLogState, from: &Self, now: Tick) {
        // What expired under the old period must not return under a longer one.
        state.0.drop_oldest(from.expired(state, now));
    }

    fn forgettable_at(&self, SlidingLogState(moments): &SlidingLogState) -> Tick {
        match (moments.newest(), moments.seen) {
            (None, 0) => Tick::ZERO,
            (_, seen) => Tick::from_nanos(seen + self.quota.period_ns()),
        }
    }

    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.tag(3);
        fields.plain_quota(&mut self.quota);
        fields.kernel(|_| Kernel::Log {
            limit: self.quota.limit(),
            period: self.quota.period_ns(),
        });
    }

    fn state_fields(
        &self,
        SlidingLogState(moments): &mut SlidingLogState,
        fields: &mut Fields<'_>,
    ) {
        moments.list(fields);
    }
}
