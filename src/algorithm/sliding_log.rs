//! The exact window: a log of admissions.

use std::time::Duration;

use super::fields::Fields;

use super::portable;
use super::timestamps::{Entry, Timestamps};
use super::{Algorithm, Cost, Facts, GiveBack, Kernel, Portable, Report};
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

    fn remove_expired(state: &mut SlidingLogState, expired: usize) {
        if expired > 0 {
            state.entries.remove_front(expired);
        }
    }

    fn remaining(&self, state: &SlidingLogState, expired: usize) -> u64 {
        let used = state.entries.total_from(expired);
        self.quota.limit().saturating_sub(used)
    }

    /// The decision on a state whose first `expired` entries are expired.
    fn decision(&self, state: &SlidingLogState, expired: usize, now: Tick, cost: u64) -> Decision {
        let limit = self.quota.limit();
        let used = state.entries.total_from(expired);
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
        let completes = state.entries.completes(expired, enough);
        completes.map_or(0, |at| self.nanos_until_expiry(at, now))
    }

    /// Whether the whole cost of the newest moment was refunded. The moment stays, because a request
    /// with an older `now` has to join it: the costs that have expired by then are gone.
    fn is_newest_refunded(state: &SlidingLogState) -> bool {
        state.entries.len() > 0 && state.entries.newest_cost() == 0
    }

    /// Returns the newest moment.
    fn record(state: &mut SlidingLogState, now: Tick, cost: u64) -> Tick {
        match state.entries.back() {
            // The same moment, or a `now` older than the state: the cost joins the newest moment.
            Some(last) if last.at >= now => {
                let all = state.entries.newest_cost().wrapping_add(cost);
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
        portable::check(self)
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
        let newest = state.entries.back().map(|newest| newest.at);
        // Expired entries stay: a request with an older `now` may still need them.
        let kept = self.expired_count(state, now);
        state.entries.take_back(kept, cost.at, cost.units);
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
        let used = |state: &SlidingLogState| state.entries.total_from(expired);
        let cost = cost.min(Tick::MAX.as_nanos() - used(state));
        if cost > 0 {
            // The charge to a full log joins the newest moment; otherwise the log would grow.
            let is_full = state.entries.len() as u64 >= self.quota.limit();
            if let (true, Some(last)) = (is_full, state.entries.back()) {
                let held = state.entries.newest_cost();
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

    fn rescale(&self, state: &mut SlidingLogState, from: &Self, now: Tick) {
        // Entries that expired under the old period must not return under a longer one.
        Self::remove_expired(state, from.expired_count(state, now));
    }

    fn forgettable_at(&self, state: &SlidingLogState) -> Tick {
        state.entries.back().map_or(Tick::ZERO, |last| {
            Tick::from_nanos(last.at.as_nanos() + self.quota.period_ns())
        })
    }

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

    fn report(&self, state: &SlidingLogState, now: Tick) -> Report {
        Report {
            available: self.remaining(state, self.expired_count(state, now)),
            is_blocked: false,
            heap_bytes: state.entries.heap_bytes(),
        }
    }
}

impl Portable for SlidingLog {
    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.tag(3);
        fields.plain_quota(&mut self.quota);
    }

    fn kernels(&self, _: Tick) -> Option<Vec<Kernel>> {
        Some(vec![Kernel::Log {
            limit: self.quota.limit(),
            period: self.quota.period_ns(),
        }])
    }

    fn state_fields(&self, state: &mut SlidingLogState, fields: &mut Fields<'_>) {
        state.entries.list(fields);
    }
}
