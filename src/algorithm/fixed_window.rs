//! A limit per window.

use std::time::Duration;

use super::fields::{self, Fields};
use super::setting::{OFFSET, Setting};
use super::window::{Grid, WindowState};
use super::{Algorithm, Capabilities, Cost, Division, GiveBack, Turns, used_as};
use crate::clock::{Tick, nanos};
use crate::decision::Decision;
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
/// assert_eq!(limiter.check(2).reset_after, Duration::from_secs(1));
/// assert!(limiter.check(1).is_denied());
/// clock.advance(Duration::from_secs(1));
/// assert!(limiter.check(1).is_admitted());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    quota: Quota,
    grid: Grid,
    anchored: bool,
}

static ANCHORED: Setting = Setting::one_of("anchored", &["false", "true"]);

impl FixedWindow {
    /// Windows aligned to the clock, each with the quota's limit. A quota with a burst is refused
    /// when a limiter is built.
    pub const fn new(quota: Quota) -> Self {
        Self {
            grid: Grid::new(quota.period_ns(), 0),
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
        self.grid = Grid::new(self.grid.length(), nanos(offset));
        self
    }

    /// The end of a window that is opened at `now`.
    #[inline]
    const fn end(&self, now: Tick) -> u64 {
        if self.anchored {
            return now.as_nanos() + self.grid.length();
        }
        self.grid.end(now)
    }
}

impl Algorithm for FixedWindow {
    type State = WindowState;

    fn quota(&self) -> Quota {
        self.quota
    }

    #[inline]
    fn capabilities(&self) -> Capabilities {
        Capabilities::with_turns(Turns::Repeat(self.grid.length()))
    }

    fn validate(&self) -> Result<(), ConfigError> {
        if self.quota.period() == MONTH && !self.anchored {
            return Err(ConfigError::unsupported(
                "a month as a fixed window",
                "use `CalendarWindow`",
            ));
        }
        if self.anchored && self.grid.offset > 0 {
            let allowed = "offset or anchored: offset has no effect beside anchored";
            return Err(OFFSET.refuse(self.grid.offset, allowed));
        }
        fields::check(self)
    }

    #[inline]
    fn fresh(&self, _now: Tick) -> WindowState {
        WindowState::default()
    }

    #[inline]
    fn decide(&self, state: &mut WindowState, now: Tick, cost: u64) -> Decision {
        state.decide(self.quota.limit(), now, cost, || self.end(now))
    }

    fn refund(&self, state: &mut WindowState, now: Tick, cost: Cost, _: GiveBack) {
        state.refund(now, cost, |open| {
            open.end.saturating_sub(self.grid.length())
        });
    }

    fn charge(&self, state: &mut WindowState, now: Tick, cost: u64) -> Duration {
        state.charge(self.quota.limit(), now, cost, || self.end(now))
    }

    fn rescale(&self, state: &mut WindowState, from: &Self, now: Tick) {
        if (self.anchored, self.grid) != (from.anchored, from.grid) {
            *state = used_as(self, from.units_used(state, now), now);
        }
    }

    fn forgettable_at(&self, state: &WindowState) -> Tick {
        if state.used == 0 && !self.anchored {
            return Tick::ZERO;
        }
        Tick::from_nanos(state.end)
    }

    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.tag(1);
        fields.plain_quota(&mut self.quota);
        fields.flag(&ANCHORED, &mut self.anchored);
        fields.setting_or(&OFFSET, &mut self.grid.offset, 0);
        self.grid = Grid::new(self.quota.period_ns(), self.grid.offset);
        fields.kernel(|_| {
            if self.anchored {
                return self.grid.kernel(self.quota, 1, Division::Anchored);
            }
            self.grid.kernel(self.quota, 1, Division::Even)
        });
    }

    fn state_fields(&self, state: &mut WindowState, fields: &mut Fields<'_>) {
        if self.anchored {
            fields.end(&mut state.end, self.grid.length(), Tick::as_nanos);
        } else {
            self.grid.list_end(&mut state.end, fields);
        }
        fields.count(&mut state.used);
    }
}
