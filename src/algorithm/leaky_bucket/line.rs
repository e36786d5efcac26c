//! The line of a leaky bucket: requests are released one interval per unit apart.

use super::charge::Charge;
use crate::algorithm::math::{ExactNanos, Interval};
use crate::clock::Tick;
use crate::decision::{Decision, Verdict};

/// A line of one key. Its state is the moment when the line is free for a request of cost 1; zero
/// is a line never used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) interval: Interval,
    /// The limit that decisions report, and in [`Charge::Before`] the units that an unused line
    /// grants at once.
    pub(super) capacity: u64,
    /// The largest cost that is ever admitted.
    pub(super) max_cost: u64,
    pub(super) charge: Charge,
}

impl Line {
    /// When a request of `cost` is released, and when the line is free for one of cost 1 after it.
    ///
    /// An unused line releases a request of any cost at once. A line that has been idle until it is
    /// forgettable counts as unused.
    pub(super) fn start_and_next(
        &self,
        state: ExactNanos,
        now: Tick,
        cost: u64,
    ) -> (ExactNanos, ExactNanos) {
        let (present, interval) = (ExactNanos::from_tick(now), &self.interval);
        match self.charge {
            Charge::After => {
                let start = state.max(present);
                (start, interval.add(start, interval.time_for(cost)))
            }
            Charge::Before => {
                let start = match (state, cost) {
                    (ExactNanos::ZERO, _) | (_, 0) => present,
                    (free, _) if self.idle_from(free) <= present => present,
                    (free, cost) => interval.add(free, interval.time_for(cost - 1)).max(present),
                };
                (start, interval.add(start, interval.time_for(1)))
            }
        }
    }

    /// Schedules a request of `cost` if its turn comes within `most`.
    pub(super) fn schedule(
        &self,
        state: &mut ExactNanos,
        now: Tick,
        cost: u64,
        most: ExactNanos,
    ) -> Decision {
        if cost == 0 {
            return self.decision(Verdict::Admit, *state, now, None);
        }
        if cost > self.max_cost {
            return self.decision(Verdict::Deny, *state, now, None);
        }
        let (start, free) = self.start_and_next(*state, now, cost);
        let wait = self.interval.sub(start, ExactNanos::from_tick(now));
        if wait <= most {
            *state = free;
            self.decision(Verdict::after(wait.ceil()), free, now, None)
        } else {
            // It is released at the latest when the line counts as unused.
            let retry_after = self.interval.sub(wait, most).ceil();
            let retry_after = retry_after.min(self.idle_from(*state).nanos_since(now));
            self.decision(Verdict::Deny, *state, now, Some(retry_after))
        }
    }

    /// How long a free line is idle until it counts as unused.
    fn idle_delay(&self) -> ExactNanos {
        match self.charge {
            Charge::After => ExactNanos::ZERO,
            Charge::Before => self.interval.time_for(self.capacity.saturating_sub(1)),
        }
    }

    /// When a line of this state counts as unused.
    pub(super) fn idle_from(&self, state: ExactNanos) -> ExactNanos {
        self.interval.add(state, self.idle_delay())
    }

    /// The latest state that counts as unused at `now`.
    pub(super) fn idle_since(&self, now: Tick) -> ExactNanos {
        self.interval
            .sub(ExactNanos::from_tick(now), self.idle_delay())
    }

    /// The longest wait for a request of `cost` that leaves at most `units` waiting.
    pub(super) fn longest_wait(&self, units: u64, max_wait: u64, cost: u64) -> ExactNanos {
        let places = match self.charge {
            // The first unit goes at its turn; the others take the places behind it.
            Charge::After => units.saturating_sub(cost.saturating_sub(1)),
            Charge::Before => units,
        };
        self.interval
            .time_for(places)
            .min(ExactNanos::from_nanos(max_wait))
    }

    fn decision(
        &self,
        verdict: Verdict,
        state: ExactNanos,
        now: Tick,
        retry_after: Option<u64>,
    ) -> Decision {
        let (capacity, present) = (self.capacity, ExactNanos::from_tick(now));
        let remaining = match self.charge {
            Charge::After if state <= present => capacity,
            // One for the free line, and one for each interval since.
            Charge::Before if state == ExactNanos::ZERO => capacity,
            Charge::Before if state <= present => {
                let since = self.interval.sub(present, state);
                let intervals = self.interval.units_in(since);
                intervals.saturating_add(1).min(capacity)
            }
            _ => 0,
        };
        let reset_after = self.start_and_next(state, now, capacity).0.nanos_since(now);
        Decision::new(verdict, capacity, remaining, retry_after, reset_after)
    }
}
