//! The exact window: every admission and when it was.

use std::time::Duration;

use super::timestamps::{Entry, Timestamps};
use super::{Algorithm, Inherit};
use crate::clock::Tick;
use crate::decision::{Decision, Verdict};
use crate::error::ConfigError;
use crate::quota::Quota;

/// At most L in **every** interval of length W, exactly.
///
/// Remembers the moments of the last admissions, as many as are in use and never more than L: 16
/// bytes for each distinct moment, in rooms for 3, 8, 16 and so on. Denied requests are not
/// remembered, so a client that keeps trying is let in again as soon as one that waits. What is
/// charged afterwards to a key with L moments joins the newest of them, and all of that one leaves a
/// period after the charge.
///
/// ```text
/// limit 3     |······W······|
/// requests    x  x    x  x   x   x
/// admitted    ✓  ✓    ✓      ✓   ✓     each as soon as the one three before it is W old
/// denied                 ✗
/// ```
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{Limiter, ManualClock, Quota, SlidingLog};
///
/// let clock = ManualClock::new();
/// let limiter = Limiter::with_clock(SlidingLog::new(Quota::per_minute(2)), clock.clone());
/// assert!(limiter.check().is_admitted());
/// clock.advance(Duration::from_secs(20));
/// assert!(limiter.check().is_admitted());
/// assert_eq!(limiter.check().retry_after, Some(Duration::from_secs(40)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    quota: Quota,
}

/// What [`SlidingLog`] remembers of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlidingLogState {
    entries: Timestamps,
}

impl SlidingLog {
    /// At most the quota's limit in every period; the burst is not used.
    pub const fn new(quota: Quota) -> Self {
        Self { quota }
    }

    fn until(&self, left: Tick, now: Tick) -> u64 {
        (left.as_nanos() + self.quota.period_ns()).saturating_sub(now.as_nanos())
    }

    /// The entry that is gone is exactly a period old, or older.
    fn is_expired(&self, entry: Entry, now: Tick) -> bool {
        now.as_nanos() >= entry.at.as_nanos() + self.quota.period_ns()
    }

    /// How many entries are gone at `now`. One look tells on a busy key; after a gap the search is
    /// a binary one.
    fn gone(&self, state: &SlidingLogState, now: Tick) -> usize {
        match state.entries.front() {
            Some(oldest) if self.is_expired(oldest, now) => state
                .entries
                .partition_point(|entry| self.is_expired(entry, now)),
            _ => 0,
        }
    }

    /// Drops what is gone, which changes no decision.
    fn prune(&self, state: &mut SlidingLogState, now: Tick) {
        let gone = self.gone(state, now);
        Self::drop_first(state, gone);
    }

    fn drop_first(state: &mut SlidingLogState, gone: usize) {
        if gone > 0 {
            state.entries.drop_first(gone);
        }
    }

    /// The total when the entries before `gone` have left, and what came since.
    fn used(state: &SlidingLogState, gone: usize) -> (u64, u64) {
        let left = state.entries.total_before(gone);
        let all = state.entries.total_before(state.entries.len());
        (left, all.wrapping_sub(left))
    }

    fn remaining(&self, state: &SlidingLogState, gone: usize) -> u64 {
        let (_, used) = Self::used(state, gone);
        self.quota.limit().saturating_sub(used)
    }

    /// The answer from a state of which the entries before `gone` have left.
    fn answer(&self, state: &SlidingLogState, gone: usize, now: Tick, cost: u64) -> Decision {
        let limit = self.quota.limit();
        let (_, used) = Self::used(state, gone);
        let last = state.entries.back().filter(|_| gone < state.entries.len());
        let reset_after = last.map_or(0, |last| self.until(last.at, now));
        let remaining = limit.saturating_sub(used);
        if cost == 0 || cost <= remaining {
            return Decision::new(Verdict::Admit, limit, remaining, None, reset_after);
        }
        let retry_after =
            (cost <= limit).then(|| self.nanos_until_free(state, gone, used - (limit - cost), now));
        Decision::new(Verdict::Deny, limit, remaining, retry_after, reset_after)
    }

    /// Until `enough` of what the entries from `gone` on cost has left too.
    fn nanos_until_free(
        &self,
        state: &SlidingLogState,
        gone: usize,
        enough: u64,
        now: Tick,
    ) -> u64 {
        let (left, _) = Self::used(state, gone);
        let first = state.entries.total_before(0);
        let since = |total: u64| total.wrapping_sub(first);
        let target = since(left) + enough;
        let reaches = |entry: Entry| since(entry.total) >= target;
        // As a rule the next one that leaves is enough.
        let entry = if state.entries.get(gone).is_some_and(reaches) {
            gone
        } else {
            state.entries.partition_point(|entry| !reaches(entry))
        };
        state
            .entries
            .get(entry)
            .map_or(0, |entry| self.until(entry.at, now))
    }

    /// What the newest moment cost.
    fn newest_cost(state: &SlidingLogState) -> u64 {
        let last = state.entries.len().saturating_sub(1);
        Self::used(state, last).1
    }

    /// Answers the newest moment.
    fn record(state: &mut SlidingLogState, now: Tick, cost: u64) -> Tick {
        match state.entries.back() {
            // The same moment, or a `now` older than the state: the newest moment counts.
            Some(last) if last.at >= now => {
                let all = Self::newest_cost(state).wrapping_add(cost);
                state.entries.replace_back(last.at, all);
                last.at
            }
            _ => {
                state.entries.push_back(now, cost);
                now
            }
        }
    }
}

impl Algorithm for SlidingLog {
    type State = SlidingLogState;

    fn quota(&self) -> Quota {
        self.quota
    }

    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        Ok(Self::new(quota))
    }

    fn fresh(&self, _now: Tick) -> SlidingLogState {
        SlidingLogState::default()
    }

    fn decide(&self, state: &mut SlidingLogState, now: Tick, cost: u64) -> Decision {
        let gone = self.gone(state, now);
        let remaining = self.remaining(state, gone);
        if cost == 0 || cost > remaining {
            // A denial drops nothing: a request whose moment is older may still need it.
            return self.answer(state, gone, now, cost);
        }
        Self::drop_first(state, gone);
        let last = Self::record(state, now, cost);
        let (limit, reset_after) = (self.quota.limit(), self.until(last, now));
        Decision::new(Verdict::Admit, limit, remaining - cost, None, reset_after)
    }

    fn peek(&self, state: &SlidingLogState, now: Tick, cost: u64) -> Decision {
        self.answer(state, self.gone(state, now), now, cost)
    }

    fn refund(&self, state: &mut SlidingLogState, now: Tick, mut cost: u64) {
        self.prune(state, now);
        // The newest first.
        while cost > 0 {
            let Some(last) = state.entries.back() else {
                break;
            };
            let held = Self::newest_cost(state);
            if held > cost {
                state.entries.replace_back(last.at, held - cost);
                break;
            }
            cost -= held;
            state.entries.pop_back();
        }
    }

    fn charge(&self, state: &mut SlidingLogState, now: Tick, cost: u64) -> Duration {
        self.prune(state, now);
        let used = |state: &SlidingLogState| Self::used(state, 0).1;
        let cost = cost.min(Tick::MAX.as_nanos() - used(state));
        if cost > 0 {
            // What comes on top of a full log joins the newest moment, or it would grow.
            let is_full = state.entries.len() as u64 >= self.quota.limit();
            if let (true, Some(last)) = (is_full, state.entries.back()) {
                let held = Self::newest_cost(state);
                state.entries.replace_back(last.at.max(now), held);
            }
            Self::record(state, now, cost);
        }
        let owed = used(state).saturating_sub(self.quota.limit());
        if owed == 0 {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.nanos_until_free(state, 0, owed, now))
    }

    fn rescale(&self, state: &mut SlidingLogState, from: &Self, now: Tick, inherit: Inherit) {
        if inherit == Inherit::Reset {
            *state = self.fresh(now);
        } else {
            // What has left under the old period must not come back under a longer one.
            from.prune(state, now);
        }
    }

    fn held_bytes(&self, state: &SlidingLogState) -> usize {
        state.entries.held_bytes()
    }

    fn max_heap_bytes(&self) -> usize {
        Timestamps::max_heap_bytes(usize::try_from(self.quota.limit()).unwrap_or(usize::MAX))
    }

    fn forgettable_at(&self, state: &SlidingLogState) -> Tick {
        state.entries.back().map_or(Tick::ZERO, |last| {
            Tick::from_nanos(last.at.as_nanos() + self.quota.period_ns())
        })
    }
}

/// For a store elsewhere that decides by a script.
#[cfg(feature = "redis")]
impl SlidingLog {
    /// The state with these costs, the oldest first.
    pub(crate) fn state(costs: impl Iterator<Item = (Tick, u64)>) -> SlidingLogState {
        let mut state = SlidingLogState::default();
        for (at, cost) in costs {
            Self::record(&mut state, at, cost);
        }
        state
    }
}
