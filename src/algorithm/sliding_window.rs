//! A sliding window of two counts and a weight.

use std::time::Duration;

use super::fields::Fields;
use super::interval::low_u64;
use super::setting::OFFSET;
use super::window::Grid;
use super::{Algorithm, Capabilities, Cost, Division, GiveBack, Turns, used_as};
use crate::clock::{Tick, nanos};
use crate::decision::{Decision, Verdict};
use crate::quota::Quota;

/// About L in any W, from two counts.
///
/// Counts the current window in full, and of the previous one the share that the last W still
/// covers.
///
/// A request of cost n passes if `floor(previous * (W - elapsed) / W) + current + n <= L`, in
/// integers. For smooth traffic the count is within one of an exact log. The worst case is 2L in a
/// W: L at the end of one window, and the next L when less than one of them counts, which is
/// shortly before the end of the next window.
///
/// ```text
/// limit 4     |- - - 4 admitted - -|- - - - now
///             |      [ covered by the last W    ]
///                    half of the 4 still count: 2 more pass
/// ```
///
#[cfg_attr(doc, doc = crate::picture::picture!(
    "algorithms/sliding_window.svg",
    "SlidingWindow and six kinds of traffic: a burst at the edge of two windows passes little more than the limit within a second."
))]
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{Limiter, ManualClock, Quota, SlidingWindow};
///
/// let clock = ManualClock::new();
/// let limiter = Limiter::new(SlidingWindow::new(Quota::per_minute(4))).with_clock(clock.clone());
/// assert!(limiter.check(4).is_admitted());
/// clock.advance(Duration::from_secs(90));
/// assert_eq!(limiter.peek(1).remaining(), 2);
/// ```
///
/// With 86 requests in the minute before and 12 in this one, 15 s into it, 86 * 45 / 60 + 12 = 76.5 count, of
/// which the whole ones are compared:
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{Limiter, ManualClock, Quota, SlidingWindow};
///
/// let clock = ManualClock::new();
/// let limiter = Limiter::new(SlidingWindow::new(Quota::per_minute(100))).with_clock(clock.clone());
/// assert!(limiter.check(86).is_admitted());
/// clock.advance(Duration::from_secs(60 + 15));
/// assert!(limiter.check(12).is_admitted());
/// assert_eq!(limiter.peek(1).remaining(), 100 - 76);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    quota: Quota,
    grid: Grid,
}

/// The state of a key under [`SlidingWindow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindowState {
    /// When the current window ends.
    end: u64,
    previous: u64,
    current: u64,
}

impl SlidingWindow {
    /// Windows aligned to the clock. A quota with a burst is refused when a limiter is built.
    pub const fn new(quota: Quota) -> Self {
        Self {
            grid: Grid::new(quota.period_ns(), 0),
            quota,
        }
    }

    /// Starts windows at `offset + k * period`.
    #[must_use]
    pub fn offset(mut self, offset: Duration) -> Self {
        self.grid = Grid::new(self.grid.length(), nanos(offset));
        self
    }

    /// The state at `now`, and how far into its window `now` is. If `now` is older, the start of the newer
    /// window counts the most.
    #[inline]
    fn state_at(&self, mut state: SlidingWindowState, now: Tick) -> (SlidingWindowState, u64) {
        let (at, length) = (now.as_nanos(), self.grid.length());
        if at >= state.end {
            let is_next = at - state.end < length;
            state = SlidingWindowState {
                end: if is_next {
                    state.end + length
                } else {
                    self.grid.end(now)
                },
                previous: if is_next { state.current } else { 0 },
                current: 0,
            };
        }
        (state, (at + length).saturating_sub(state.end))
    }

    /// What counts against the limit `elapsed` nanoseconds into the window.
    #[inline]
    fn used(&self, state: &SlidingWindowState, elapsed: u64) -> u64 {
        let length = self.grid.length();
        let covered = length - elapsed;
        let previous = match state.previous.checked_mul(covered) {
            Some(product) => product / length,
            None => low_u64(u128::from(state.previous) * u128::from(covered) / u128::from(length)),
        };
        previous.saturating_add(state.current)
    }

    /// How far into the window at most `room` counts against the limit; beyond the length of the
    /// window if that is in a later one.
    fn elapsed_until_usage(&self, state: &SlidingWindowState, room: u64) -> u64 {
        let length = self.grid.length();
        if state.current <= room {
            self.elapsed_until_carry(state.previous, room - state.current)
        } else {
            length + self.elapsed_until_carry(state.current, room)
        }
    }

    /// How far into a window `floor(previous * (W - elapsed) / W)` has fallen to `room`.
    fn elapsed_until_carry(&self, previous: u64, room: u64) -> u64 {
        if previous <= room {
            return 0;
        }
        let length = self.grid.length();
        // previous * covered < (room + 1) * W, so covered is below their quotient rounded up; the
        // quotient is at most W because room + 1 <= previous.
        let quotient = (u128::from(room + 1) * u128::from(length)).div_ceil(u128::from(previous));
        length - (low_u64(quotient) - 1)
    }

    fn nanos_until_usage(&self, state: &SlidingWindowState, room: u64, now: Tick) -> u64 {
        match self.elapsed_until_usage(state, room) {
            // No more counts even at the start of the window, which may be later than `now`.
            0 => 0,
            elapsed => {
                let until = state.end.saturating_add(elapsed);
                until.saturating_sub(now.as_nanos() + self.grid.length())
            }
        }
    }
}

impl Algorithm for SlidingWindow {
    type State = SlidingWindowState;

    fn quota(&self) -> Quota {
        self.quota
    }

    #[inline]
    fn capabilities(&self) -> Capabilities {
        Capabilities::with_turns(Turns::Slide(self.grid.length()))
    }

    #[inline]
    fn fresh(&self, _now: Tick) -> SlidingWindowState {
        SlidingWindowState {
            end: self.grid.first_end(),
            previous: 0,
            current: 0,
        }
    }

    #[expect(
        clippy::inline_always,
        reason = "as for `TokenBucket`: 137 instructions, not 215"
    )]
    #[inline(always)]
    fn decide(&self, state: &mut SlidingWindowState, now: Tick, cost: u64) -> Decision {
        let limit = self.quota.limit();
        let (mut at, elapsed) = self.state_at(*state, now);
        let used = self.used(&at, elapsed);
        let mut after = used;
        let mut verdict = Verdict::Admit;
        let mut retry_after = None;
        if cost > 0 {
            match used.checked_add(cost) {
                Some(sum) if sum <= limit => {
                    after = sum;
                    at.current += cost;
                    *state = at;
                }
                _ => {
                    verdict = Verdict::Deny;
                    if cost <= limit {
                        retry_after = Some(self.nanos_until_usage(&at, limit - cost, now));
                    }
                }
            }
        }
        Decision::new(
            verdict,
            limit,
            limit.saturating_sub(after),
            retry_after,
            self.nanos_until_usage(&at, 0, now),
        )
    }

    fn refund(&self, state: &mut SlidingWindowState, now: Tick, cost: Cost, _: GiveBack) {
        let (cost, taken_at) = (cost.units, cost.at);
        let (mut at, _) = self.state_at(*state, now);
        let length = self.grid.length();
        if taken_at.as_nanos() < at.end.saturating_sub(2 * length) {
            return;
        }
        // Newest cost first, but none that is newer than the refunded one.
        let from_current = if taken_at.as_nanos() < at.end.saturating_sub(length) {
            0
        } else {
            cost.min(at.current)
        };
        at.current -= from_current;
        at.previous = at.previous.saturating_sub(cost - from_current);
        *state = at;
    }

    fn charge(&self, state: &mut SlidingWindowState, now: Tick, cost: u64) -> Duration {
        let (mut at, elapsed) = self.state_at(*state, now);
        if cost > 0 {
            at.current = at.current.saturating_add(cost).min(Tick::MAX.as_nanos());
            *state = at;
        }
        let limit = self.quota.limit();
        Duration::from_nanos(if self.used(&at, elapsed) > limit {
            self.nanos_until_usage(&at, limit, now)
        } else {
            0
        })
    }

    fn rescale(&self, state: &mut SlidingWindowState, from: &Self, now: Tick) {
        if self.grid != from.grid {
            *state = used_as(self, from.units_used(state, now), now);
        }
    }

    fn forgettable_at(&self, state: &SlidingWindowState) -> Tick {
        // From here on less than one request counts.
        let since_end = state.end.saturating_add(self.elapsed_until_usage(state, 0));
        Tick::from_nanos(since_end.saturating_sub(self.grid.length()))
    }

    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.tag(2);
        fields.plain_quota(&mut self.quota);
        fields.setting_or(&OFFSET, &mut self.grid.offset, 0);
        self.grid = Grid::new(self.quota.period_ns(), self.grid.offset);
        fields.kernel(|_| self.grid.kernel(self.quota, 2, Division::Weighted));
    }

    fn state_fields(&self, state: &mut SlidingWindowState, fields: &mut Fields<'_>) {
        self.grid.list_end(&mut state.end, fields);
        fields.count(&mut state.previous);
        fields.count(&mut state.current);
    }
}
