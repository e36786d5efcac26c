//! The exact window: a log of admissions.

use std::time::Duration;

use super::fields::Fields;
use super::settings::refuse_burst;
use super::timestamps::{Entry, Timestamps};
use super::{Algorithm, Cost, Facts, GiveBack, Inherit, Portable, Words};
use crate::clock::Tick;
use crate::decision::{Decision, Verdict};
use crate::error::ConfigError;
use crate::quota::Quota;

/// At most L in **every** interval of length W, exactly.
///
/// Keeps the moments of the admissions in the last W, at most L: 16 bytes per distinct moment, with
/// capacity for 3, 8, 16 and so on. Denied requests are not kept, so a client that keeps trying is
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
/// assert!(limiter.check().is_admitted());
/// clock.advance(Duration::from_secs(20));
/// assert!(limiter.check().is_admitted());
/// assert_eq!(limiter.check().retry_after, Some(Duration::from_secs(40)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    quota: Quota,
}

/// The state of a key under [`SlidingLog`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlidingLogState {
    entries: Timestamps,
}

impl SlidingLog {
    /// At most the quota's limit in every period. A quota with a burst is refused when a limiter is
    /// built.
    pub const fn new(quota: Quota) -> Self {
        Self { quota }
    }

    /// Nanoseconds until an entry of this moment expires.
    fn nanos_until_expiry(&self, at: Tick, now: Tick) -> u64 {
        (at.as_nanos() + self.quota.period_ns()).saturating_sub(now.as_nanos())
    }

    /// An entry expires when it is exactly a period old.
    fn is_expired(&self, entry: Entry, now: Tick) -> bool {
        now.as_nanos() >= entry.at.as_nanos() + self.quota.period_ns()
    }

    /// How many entries are expired at `now`.
    ///
    /// On a busy key the oldest entry is usually not; after a gap the search is a binary one.
    fn expired_count(&self, state: &SlidingLogState, now: Tick) -> usize {
        match state.entries.front() {
            Some(oldest) if self.is_expired(oldest, now) => state
                .entries
                .partition_point(|entry| self.is_expired(entry, now)),
            _ => 0,
        }
    }

    /// Removes expired entries, which changes no decision.
    fn prune(&self, state: &mut SlidingLogState, now: Tick) {
        let expired = self.expired_count(state, now);
        Self::remove_expired(state, expired);
    }

    fn remove_expired(state: &mut SlidingLogState, expired: usize) {
        if expired > 0 {
            state.entries.remove_front(expired);
        }
    }

    /// The total up to the first `expired` entries, and the cost of the entries after them.
    fn totals(state: &SlidingLogState, expired: usize) -> (u64, u64) {
        let removed = state.entries.total_before(expired);
        let all = state.entries.total_before(state.entries.len());
        (removed, all.wrapping_sub(removed))
    }

    fn remaining(&self, state: &SlidingLogState, expired: usize) -> u64 {
        let (_, used) = Self::totals(state, expired);
        self.quota.limit().saturating_sub(used)
    }

    /// The decision on a state whose first `expired` entries are expired.
    fn decision(&self, state: &SlidingLogState, expired: usize, now: Tick, cost: u64) -> Decision {
        let limit = self.quota.limit();
        let (_, used) = Self::totals(state, expired);
        let counting = state.entries.len() - usize::from(Self::is_newest_refunded(state));
        let last = (expired < counting).then(|| state.entries.get(counting - 1));
        let last = last.flatten();
        let reset_after = last.map_or(0, |last| self.nanos_until_expiry(last.at, now));
        let remaining = limit.saturating_sub(used);
        if cost == 0 || cost <= remaining {
            return Decision::new(Verdict::Admit, limit, remaining, None, reset_after);
        }
        let retry_after = (cost <= limit)
            .then(|| self.nanos_until_free(state, expired, used - (limit - cost), now));
        Decision::new(Verdict::Deny, limit, remaining, retry_after, reset_after)
    }

    /// Nanoseconds until `enough` cost of the entries from `expired` on has expired too.
    fn nanos_until_free(
        &self,
        state: &SlidingLogState,
        expired: usize,
        enough: u64,
        now: Tick,
    ) -> u64 {
        let (removed, _) = Self::totals(state, expired);
        let first = state.entries.total_before(0);
        let since = |total: u64| total.wrapping_sub(first);
        let target = since(removed) + enough;
        let reaches = |entry: Entry| since(entry.total) >= target;
        // Usually the next entry to expire is enough.
        let entry = if state.entries.get(expired).is_some_and(reaches) {
            expired
        } else {
            state.entries.partition_point(|entry| !reaches(entry))
        };
        state
            .entries
            .get(entry)
            .map_or(0, |entry| self.nanos_until_expiry(entry.at, now))
    }

    /// The cost of the newest moment.
    fn newest_cost(state: &SlidingLogState) -> u64 {
        let last = state.entries.len().saturating_sub(1);
        Self::totals(state, last).1
    }

    /// Whether the whole cost of the newest moment was refunded. The moment stays, because a request
    /// with an older `now` has to join it: the costs that have expired by then are gone.
    fn is_newest_refunded(state: &SlidingLogState) -> bool {
        state.entries.len() > 0 && Self::newest_cost(state) == 0
    }

    /// Returns the newest moment.
    fn record(state: &mut SlidingLogState, now: Tick, cost: u64) -> Tick {
        match state.entries.back() {
            // The same moment, or a `now` older than the state: the cost joins the newest moment.
            Some(last) if last.at >= now => {
                let all = Self::newest_cost(state).wrapping_add(cost);
                state.entries.replace_back(last.at, all);
                last.at
            }
            _ => {
                if Self::is_newest_refunded(state) {
                    state.entries.pop_back();
                }
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

    #[inline]
    fn facts(&self) -> Facts {
        Facts {
            max_heap_bytes: Timestamps::max_heap_bytes(
                usize::try_from(self.quota.limit()).unwrap_or(usize::MAX),
            ),
            ..Facts::ONE_LIMIT
        }
    }

    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        Ok(Self::new(quota))
    }

    fn validate(&self) -> Result<(), ConfigError> {
        refuse_burst(&self.quota)
    }

    fn fresh(&self, _now: Tick) -> SlidingLogState {
        SlidingLogState::default()
    }

    fn decide(&self, state: &mut SlidingLogState, now: Tick, cost: u64) -> Decision {
        let expired = self.expired_count(state, now);
        let remaining = self.remaining(state, expired);
        if cost == 0 || cost > remaining {
            // A denial removes nothing: a request with an older `now` may still need the entries.
            return self.decision(state, expired, now, cost);
        }
        Self::remove_expired(state, expired);
        let last = Self::record(state, now, cost);
        let (limit, reset_after) = (self.quota.limit(), self.nanos_until_expiry(last, now));
        Decision::new(Verdict::Admit, limit, remaining - cost, None, reset_after)
    }

    fn peek(&self, state: &SlidingLogState, now: Tick, cost: u64) -> Decision {
        self.decision(state, self.expired_count(state, now), now, cost)
    }

    fn refund(&self, state: &mut SlidingLogState, now: Tick, cost: Cost, _: GiveBack) {
        let Cost {
            units: cost,
            at: taken_at,
        } = cost;
        let newest = state.entries.back().map(|newest| newest.at);
        let mut newer = Vec::new();
        let mut left = cost;
        // Expired entries stay: a request with an older `now` may still need them.
        let counts = |last: &Entry| !self.is_expired(*last, now);
        while let Some(last) = state.entries.back().filter(|last| left > 0 && counts(last)) {
            let held = Self::newest_cost(state);
            if last.at > taken_at {
                newer.push((last.at, held));
            } else if held > left {
                state.entries.replace_back(last.at, held - left);
                break;
            } else {
                // Newest first.
                left -= held;
            }
            state.entries.pop_back();
        }
        for (at, held) in newer.into_iter().rev() {
            state.entries.push_back(at, held);
        }
        let left = state.entries.back().map(|left| left.at);
        if let Some(newest) = newest.filter(|_| left != newest) {
            state.entries.push_back(newest, 0);
        }
    }

    fn charge(&self, state: &mut SlidingLogState, now: Tick, cost: u64) -> Duration {
        let mut expired = self.expired_count(state, now);
        if cost > 0 {
            Self::remove_expired(state, expired);
            expired = 0;
        }
        let used = |state: &SlidingLogState| Self::totals(state, expired).1;
        let cost = cost.min(Tick::MAX.as_nanos() - used(state));
        if cost > 0 {
            // The charge to a full log joins the newest moment; otherwise the log would grow.
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
        Duration::from_nanos(self.nanos_until_free(state, expired, owed, now))
    }

    fn rescale(&self, state: &mut SlidingLogState, from: &Self, now: Tick, inherit: Inherit) {
        if inherit == Inherit::Reset {
            *state = self.fresh(now);
        } else {
            // Entries that expired under the old period must not return under a longer one.
            from.prune(state, now);
        }
    }

    fn forgettable_at(&self, state: &SlidingLogState) -> Tick {
        state.entries.back().map_or(Tick::ZERO, |last| {
            Tick::from_nanos(last.at.as_nanos() + self.quota.period_ns())
        })
    }
}

impl Words for SlidingLog {
    const MAX_WORDS: usize = 1;

    /// Without a copy of the log: no request waits.
    fn peek_reserve(
        &self,
        state: &SlidingLogState,
        now: Tick,
        cost: u64,
        _max_wait: Duration,
    ) -> Decision {
        self.peek(state, now, cost)
    }

    fn heap_bytes(&self, state: &SlidingLogState) -> usize {
        state.entries.heap_bytes()
    }
}

impl Portable for SlidingLog {
    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.tag(3);
        fields.quota(&mut self.quota);
    }

    fn state_fields(&self, state: &mut SlidingLogState, fields: &mut Fields<'_>) {
        state.entries.list(fields);
    }
}

/// For the stores that decide on a server.
#[cfg(feature = "redis")]
impl SlidingLog {
    /// The state with these costs, oldest first.
    pub(crate) fn state(costs: impl Iterator<Item = (Tick, u64)>) -> SlidingLogState {
        let mut state = SlidingLogState::default();
        for (at, cost) in costs {
            Self::record(&mut state, at, cost);
        }
        state
    }
}
