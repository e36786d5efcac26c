//! A sliding window of two counts and a weight.

use std::time::Duration;

use super::fields::Fields;
use super::math::{Windows, low_u64};
use super::portable;
use super::setting::OFFSET;
use super::{Algorithm, Cost, Division, Facts, GiveBack, Kernel, Portable};
use crate::clock::{Tick, nanos};
use crate::decision::{Decision, Verdict};
use crate::error::ConfigError;
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
/// assert!(limiter.check_n(4).is_admitted());
/// clock.advance(Duration::from_secs(90));
/// assert_eq!(limiter.peek().remaining(), 2);
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
/// assert!(limiter.check_n(86).is_admitted());
/// clock.advance(Duration::from_secs(60 + 15));
/// assert!(limiter.check_n(12).is_admitted());
/// assert_eq!(limiter.peek().remaining(), 100 - 76);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    quota: Quota,
    pub(crate) windows: Windows,
}

/// The state of a key under [`SlidingWindow`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlidingWindowState {
    pub(crate) window: u64,
    pub(crate) previous: u64,
    pub(crate) current: u64,
}

impl SlidingWindow {
    /// Windows aligned to the clock. A quota with a burst is refused when a limiter is built.
    pub const fn new(quota: Quota) -> Self {
        Self {
            windows: Windows::new(quota.period_ns(), 0),
            quota,
        }
    }

    /// Starts windows at `offset + k * period`.
    #[must_use]
    pub fn offset(mut self, offset: Duration) -> Self {
        self.windows = Windows::new(self.windows.length(), nanos(offset));
        self
    }

    /// The state at `now`, and how far into its window `now` is.
    #[inline]
    fn state_at(&self, state: SlidingWindowState, now: Tick) -> (SlidingWindowState, u64) {
        let (window, elapsed) = self.windows.locate(now);
        let previous = match window.checked_sub(state.window) {
            Some(0) => return (state, elapsed),
            Some(1) => state.current,
            Some(_) => 0,
            // `now` is older than the state: the start of the newer window counts the most.
            None => return (state, 0),
        };
        let state = SlidingWindowState {
            window,
            previous,
            current: 0,
        };
        (state, elapsed)
    }

    /// What counts against the limit `elapsed` nanoseconds into the window.
    #[inline]
    fn used(&self, state: &SlidingWindowState, elapsed: u64) -> u64 {
        let length = self.windows.length();
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
        let length = self.windows.length();
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
        let length = self.windows.length();
        // previous * covered < (room + 1) * W, so covered is below their quotient rounded up; the
        // quotient is at most W because room + 1 <= previous.
        let quotient = (u128::from(room + 1) * u128::from(length)).div_ceil(u128::from(previous));
        length - (low_u64(quotient) - 1)
    }

    fn nanos_until_usage(&self, state: &SlidingWindowState, room: u64, now: Tick) -> u64 {
        match self.elapsed_until_usage(state, room) {
            // No more counts even at the start of the window, which may be later than `now`.
            0 => 0,
            elapsed => self.windows.nanos_until(state.window, elapsed, now),
        }
    }
}

impl Algorithm for SlidingWindow {
    type State = SlidingWindowState;

    fn quota(&self) -> Quota {
        self.quota
    }

    #[inline]
    fn facts(&self) -> Facts {
        Facts::ONE_LIMIT
    }

    fn with_quota(&self, quota: Quota) -> Result<Self, ConfigError> {
        Ok(Self {
            quota,
            windows: self.windows.with_length(quota.period_ns()),
        })
    }

    fn validate(&self) -> Result<(), ConfigError> {
        portable::check(self)
    }

    #[inline]
    fn fresh(&self, _now: Tick) -> SlidingWindowState {
        SlidingWindowState::default()
    }

    #[expect(clippy::inline_always, reason = "as for `TokenBucket`")]
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
        let (taken_in, _) = self.windows.locate(taken_at);
        if taken_in + 1 < at.window {
            return;
        }
        // Newest cost first, but none that is newer than the refunded one.
        let from_current = if taken_in < at.window {
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
        if self.windows != from.windows {
            let (at, elapsed) = from.state_at(*state, now);
            let now = from.windows.not_before(state.window, now);
            *state = SlidingWindowState {
                window: self.windows.locate(now).0,
                previous: 0,
                current: from.used(&at, elapsed),
            };
        }
    }

    fn forgettable_at(&self, state: &SlidingWindowState) -> Tick {
        // From here on less than one request counts.
        let into = self.elapsed_until_usage(state, 0);
        self.windows
            .start(state.window)
            .plus(Duration::from_nanos(into))
    }
}

impl Portable for SlidingWindow {
    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.tag(2);
        let (mut quota, mut offset) = (self.quota, self.windows.offset());
        fields.plain_quota(&mut quota);
        fields.setting_or(&OFFSET, &mut offset, 0);
        self.quota = quota;
        self.windows = Windows::new(quota.period_ns(), offset);
    }

    fn kernels(&self, _: Tick) -> Option<Vec<Kernel>> {
        let grid = (self.windows.length(), self.windows.offset());
        Some(Kernel::cells(
            self.quota.limit(),
            grid,
            2,
            Division::Weighted,
        ))
    }

    fn state_fields(&self, state: &mut SlidingWindowState, fields: &mut Fields<'_>) {
        fields.moment(&mut state.window);
        fields.moment(&mut state.previous);
        fields.moment(&mut state.current);
    }
}
