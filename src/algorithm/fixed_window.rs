//! A limit per window.

use std::{cmp::Ordering, time::Duration};

use super::fields::Fields;
use super::math::Windows;
use super::portable;
use super::setting::{Range, Setting};
use super::{Algorithm, Cost, Division, Facts, GiveBack, Kernel, Portable};
use crate::clock::{Tick, nanos};
use crate::decision::{Decision, Verdict};
use crate::error::ConfigError;
use crate::quota::{MONTH, Quota};

/// At most L in each window of length W.
///
/// Windows are aligned to the clock; see [`MonotonicClock`](crate::clock::MonotonicClock) for
/// where they begin. [`anchored`](Self::anchored) windows open at a key's first admitted request
/// instead.
///
/// This is the cheapest and the coarsest algorithm: a client may use the limit of one window at its
/// end and that of the next one at its start, 2L within an instant.
///
/// ```text
/// limit 3        |·········W·········|···················|
/// requests        x      x  x x  x    x x x x
/// admitted        ✓      ✓  ✓         ✓ ✓ ✓
/// denied                      ✗  ✗          ✗  retry_after: to the next |
/// ```
///
#[cfg_attr(doc, doc = crate::picture::picture!(
    "algorithms/fixed_window.svg",
    "FixedWindow and six kinds of traffic: a burst at the edge of two windows passes twice the limit within a second."
))]
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{FixedWindow, Limiter, ManualClock, Quota};
///
/// let clock = ManualClock::new();
/// let limiter = Limiter::new(FixedWindow::new(Quota::per_minute(2))).with_clock(clock.clone());
/// clock.advance(Duration::from_secs(59));
/// assert_eq!(limiter.check_n(2).reset_after, Duration::from_secs(1));
/// assert!(limiter.check().is_denied());
/// clock.advance(Duration::from_secs(1));
/// assert!(limiter.check().is_admitted());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    quota: Quota,
    pub(crate) windows: Windows,
    pub(crate) anchored: bool,
}

/// The state of a key under [`FixedWindow`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixedWindowState {
    /// The window of `used`: its number if aligned, its first nanosecond plus one if anchored; 0 if
    /// there is none yet.
    pub(crate) window: u64,
    pub(crate) used: u64,
}

/// The window of a request.
struct OpenWindow {
    state: FixedWindowState,
    /// Nanoseconds until the window is over.
    remaining_ns: u64,
}

static ANCHORED: Setting = Setting::flag("anchored");
static START: Setting = Setting::time("offset", Range::Any).not_with("anchored");

impl FixedWindow {
    /// Windows aligned to the clock, each with the quota's limit. A quota with a burst is refused
    /// when a limiter is built.
    pub const fn new(quota: Quota) -> Self {
        Self {
            windows: Windows::new(quota.period_ns(), 0),
            quota,
            anchored: false,
        }
    }

    /// Opens the window of a key at its first admitted request, and the next one at the first
    /// admitted request after its end.
    #[must_use]
    pub const fn anchored(mut self) -> Self {
        self.anchored = true;
        self
    }

    /// Starts aligned windows at `offset + k * period`: at a local midnight instead of UTC's.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{FixedWindow, Quota};
    ///
    /// let from_six = FixedWindow::new(Quota::per_day(1_000)).offset(Duration::from_secs(6 * 3600));
    /// # let _ = from_six;
    /// ```
    #[must_use]
    pub fn offset(mut self, offset: Duration) -> Self {
        self.windows = Windows::new(self.windows.length(), nanos(offset));
        self
    }

    /// The open window at `now`, or a new and empty one.
    #[inline]
    fn open_window(&self, state: FixedWindowState, now: Tick) -> OpenWindow {
        let length = self.windows.length();
        let same = |remaining_ns| OpenWindow {
            state,
            remaining_ns,
        };
        let new = |window, remaining_ns| OpenWindow {
            state: FixedWindowState { window, used: 0 },
            remaining_ns,
        };
        if self.anchored {
            let end = state.window.saturating_add(length) - 1;
            return match end.checked_sub(now.as_nanos()) {
                Some(left @ 1..) if state.window > 0 => same(left),
                _ => new(now.as_nanos() + 1, length),
            };
        }
        let (window, elapsed) = self.windows.locate(now);
        // Numbers start at 1; 0 means "none yet".
        match (window + 1).cmp(&state.window) {
            // `now` is older than the state: the window of the state counts.
            Ordering::Less => same(self.windows.nanos_until(state.window, 0, now)),
            Ordering::Equal => same(length - elapsed),
            Ordering::Greater => new(window + 1, length - elapsed),
        }
    }

    /// `now`, or the last moment of the state's window if the state is newer than `now`.
    fn not_before(&self, state: FixedWindowState, now: Tick) -> Tick {
        match (state.window, self.anchored) {
            (0, _) => now,
            (start, true) if now.as_nanos() + 1 >= start => now,
            (start, true) => Tick::from_nanos(
                start
                    .saturating_add(self.windows.length())
                    .saturating_sub(2),
            ),
            // Windows of states are numbered from 1.
            (window, false) => self.windows.not_before(window - 1, now),
        }
    }

    #[inline]
    fn decision(&self, verdict: Verdict, open: &OpenWindow, retry_after: Option<u64>) -> Decision {
        Decision::new(
            verdict,
            self.quota.limit(),
            self.quota.limit().saturating_sub(open.state.used),
            retry_after,
            if open.state.used == 0 {
                0
            } else {
                open.remaining_ns
            },
        )
    }
}

impl Algorithm for FixedWindow {
    type State = FixedWindowState;

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
            anchored: self.anchored,
        })
    }

    fn validate(&self) -> Result<(), ConfigError> {
        if self.quota.period() == MONTH && !self.anchored {
            return Err(ConfigError::Unsupported {
                what: "a month as a fixed window",
                instead: "use `CalendarWindow`",
            });
        }
        portable::check(self)
    }

    #[inline]
    fn fresh(&self, _now: Tick) -> FixedWindowState {
        FixedWindowState::default()
    }

    #[expect(clippy::inline_always, reason = "as for `TokenBucket`")]
    #[inline(always)]
    fn decide(&self, state: &mut FixedWindowState, now: Tick, cost: u64) -> Decision {
        let mut open = self.open_window(*state, now);
        let limit = self.quota.limit();
        if cost > 0 && cost > limit.saturating_sub(open.state.used) {
            let retry_after = (cost <= limit).then_some(open.remaining_ns);
            return self.decision(Verdict::Deny, &open, retry_after);
        }
        if cost > 0 {
            open.state.used += cost;
            *state = open.state;
        }
        self.decision(Verdict::Admit, &open, None)
    }

    fn refund(&self, state: &mut FixedWindowState, now: Tick, cost: Cost, _: GiveBack) {
        let (cost, taken_at) = (cost.units, cost.at);
        let open = self.open_window(*state, now);
        // The cost of an earlier window is not in the count.
        let is_counted = if self.anchored {
            taken_at.as_nanos() + 1 >= state.window
        } else {
            self.windows.locate(taken_at).0 + 1 >= state.window
        };
        if is_counted && open.state.window == state.window {
            state.used = open.state.used.saturating_sub(cost);
        }
    }

    fn charge(&self, state: &mut FixedWindowState, now: Tick, cost: u64) -> Duration {
        let mut open = self.open_window(*state, now);
        if cost > 0 {
            open.state.used = open
                .state
                .used
                .saturating_add(cost)
                .min(Tick::MAX.as_nanos());
            *state = open.state;
        }
        let in_debt = open.state.used > self.quota.limit();
        Duration::from_nanos(if in_debt { open.remaining_ns } else { 0 })
    }

    fn rescale(&self, state: &mut FixedWindowState, from: &Self, now: Tick) {
        let now = from.not_before(*state, now);
        let open = from.open_window(*state, now).state;
        if open.window != state.window {
            // The window was over; a longer one must not reopen it.
            *state = self.fresh(now);
        } else if self.anchored != from.anchored || (!self.anchored && self.windows != from.windows)
        {
            // An anchored window keeps its start. So does an aligned one if the grid is the same.
            *state = FixedWindowState {
                used: open.used,
                ..self.open_window(self.fresh(now), now).state
            };
        }
    }

    fn forgettable_at(&self, state: &FixedWindowState) -> Tick {
        if state.used == 0 && !self.anchored {
            Tick::ZERO
        } else if self.anchored {
            let end = state.window.saturating_add(self.windows.length()) - 1;
            Tick::from_nanos(if state.window == 0 { 0 } else { end })
        } else {
            self.windows.start(state.window)
        }
    }
}

impl Portable for FixedWindow {
    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.tag(1);
        let (mut quota, mut offset) = (self.quota, self.windows.offset());
        fields.plain_quota(&mut quota);
        fields.flag(&ANCHORED, &mut self.anchored);
        fields.setting_or(&START, &mut offset, 0);
        self.quota = quota;
        self.windows = Windows::new(quota.period_ns(), offset);
    }

    fn kernels(&self, _: Tick) -> Option<Vec<Kernel>> {
        let division = if self.anchored {
            Division::Anchored
        } else {
            Division::Even
        };
        let grid = (self.windows.length(), self.windows.offset());
        Some(Kernel::cells(self.quota.limit(), grid, 1, division))
    }

    fn state_fields(&self, state: &mut FixedWindowState, fields: &mut Fields<'_>) {
        fields.moment(&mut state.window);
        fields.moment(&mut state.used);
    }
}
