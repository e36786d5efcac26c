//! A limit per day, week or month of the calendar.

use std::time::Duration;

use super::calendar::{Calendar, zone_name};
use super::fields::{self, Fields, Moved};
use super::setting::{Range, Setting, Takes};
use super::window::WindowState;
use super::{Algorithm, Capabilities, Cells, Cost, Division, GiveBack, Kernel, Turns, used_as};
use crate::clock::Tick;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::quota::{MONTH, Quota};

/// At most L in each day, week or month of the calendar, in a time zone.
///
/// Needs the feature `calendar`, which brings its own copy of the time zone database. Windows are as long as
/// the calendar makes them: a month has 28 to 31 days, and a day has 23 or 25 hours when the clocks of the
/// zone change. `reset_after` and `retry_after` are exact. Where a header states the length of a window, a
/// month has its average length.
///
/// [`anchor`](Self::anchor) moves the first day of a month or a week: a billing period from the 15th to the
/// 14th. As with [`FixedWindow`](crate::FixedWindow), a client may use the limits of two windows around the
/// moment at which they meet.
///
/// ```text
/// limit 3        |····Feb 15 to Mar 14: 28 days····|····Mar 15 to Apr 14: 31 days, less an hour····|
/// requests        x      x  x x  x                  x x x x
/// admitted        ✓      ✓  ✓                       ✓ ✓ ✓
/// denied                      ✗  ✗  retry_after: to the next |
/// ```
///
/// # Time
/// Moments count from 1970: those of [`MonotonicClock`](crate::clock::MonotonicClock) because the wall clock was
/// read once, with its first reading in the process, and those of stores. So should those of a clock of your own.
///
/// # Stores
/// It works in process, in [`Cas`](crate::store), in Redis and in a fleet. A script gets the windows around the machine's
/// wall clock and decides by the server's, so the two must be less than a window apart. A machine of a fleet names the
/// window of the store's time.
///
/// ```
/// # if cfg!(feature = "calendar") {
/// use std::time::Duration;
/// use tower_throttle::{CalendarWindow, Limiter, ManualClock, Quota};
///
/// let clock = ManualClock::new();
/// clock.advance(Duration::from_secs(1_772_319_600)); // 2026-03-01 00:00 in Berlin
/// let march = CalendarWindow::new(Quota::per_month(2), "Europe/Berlin")?;
/// let limiter = Limiter::new(march).with_clock(clock.clone());
/// // 31 days, less the hour by which the clocks are set forward.
/// let march = Duration::from_secs(31 * 86_400 - 3_600);
/// assert_eq!(limiter.check(2).reset_after, march);
/// assert_eq!(limiter.check(1).retry_after, Some(march));
/// clock.advance(march);
/// assert!(limiter.check(1).is_admitted());
/// # }
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalendarWindow {
    quota: Quota,
    calendar: Calendar,
    /// The day that begins a week or a month; `None` for the first.
    anchor: Option<u64>,
}

static ZONE: Setting = Setting::new("zone", Takes::Zone, Range::Any);
static ANCHOR: Setting = Setting::count("anchor", Range::Number(1, 31));

const SECOND: u64 = 1_000_000_000;
const DAY: Duration = Duration::from_secs(86_400);
/// A second after the last moment, when the last window ends. 34 bits hold it.
const LAST: u64 = Tick::MAX.as_nanos() / SECOND + 1;

impl CalendarWindow {
    /// Windows of the quota's period, which is a day, a week or a month, in the time zone of this IANA name.
    ///
    /// A week begins on Monday, a month on the 1st.
    ///
    /// # Errors
    /// If the period is another one, if there is no such zone, or without the feature `calendar`.
    ///
    /// ```
    /// # if cfg!(feature = "calendar") {
    /// use tower_throttle::{CalendarWindow, Quota};
    ///
    /// assert!(CalendarWindow::new(Quota::per_day(100), "America/New_York").is_ok());
    /// let error = CalendarWindow::new(Quota::per_day(100), "Mars/Olympus").unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "zone: \"Mars/Olympus\" is not allowed; give the name of a time zone, such as Europe/Berlin or UTC",
    /// );
    /// # }
    /// ```
    pub fn new(quota: Quota, zone: &str) -> Result<Self, ConfigError> {
        Ok(Self {
            calendar: Calendar::try_new(&quota, zone)?,
            quota,
            anchor: None,
        })
    }

    /// Begins a month on this day, or a week on this weekday (1 is Monday). A month that has no such day
    /// begins on its last one. An anchor out of range is refused when a limiter is built.
    ///
    /// ```
    /// # if cfg!(feature = "calendar") {
    /// use tower_throttle::{CalendarWindow, Quota};
    ///
    /// let billing = CalendarWindow::new(Quota::per_month(1_000), "UTC")?.anchor(31);
    /// # let _ = billing;
    /// # }
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    #[must_use]
    pub fn anchor(mut self, day: u8) -> Self {
        self.anchor = Some(day.into());
        self
    }

    /// The window that contains a second of the clock, as its first second and that of the next one.
    pub(crate) fn window_at(&self, second: u64) -> (u64, u64) {
        match self.calendar.window(self.anchor.unwrap_or(1), second) {
            Some((start, end)) => (start, end.min(LAST)),
            // Only settings that validation refuses have no windows.
            None => (0, LAST),
        }
    }

    /// The first nanosecond of the window of a moment, and that of the next one.
    fn bounds(&self, ns: u64) -> (u64, u64) {
        let (start, end) = self.window_at(ns / SECOND);
        (start * SECOND, end * SECOND)
    }
}

impl Algorithm for CalendarWindow {
    type State = WindowState;

    fn quota(&self) -> Quota {
        self.quota
    }

    fn capabilities(&self) -> Capabilities {
        // 26 hours, 7.6 days or 33 days: more than any that the clocks are set back in.
        Capabilities::with_turns(Turns::Vary(self.quota.period_ns() / 12 * 13))
    }

    fn validate(&self) -> Result<(), ConfigError> {
        fields::check(self)?;
        let (most, allowed) = match self.quota.period() {
            MONTH => return Ok(()),
            DAY => (0, "no anchor for a day, which begins at midnight"),
            _ => (7, "a weekday from 1 (Monday) to 7 (Sunday)"),
        };
        match self.anchor {
            Some(anchor) if anchor > most => Err(ANCHOR.refuse(anchor, allowed)),
            _ => Ok(()),
        }
    }

    fn fresh(&self, _now: Tick) -> WindowState {
        WindowState::default()
    }

    fn decide(&self, state: &mut WindowState, now: Tick, cost: u64) -> Decision {
        let end = || self.bounds(now.as_nanos()).1;
        state.decide(self.quota.limit(), now, cost, end)
    }

    fn refund(&self, state: &mut WindowState, now: Tick, cost: Cost, _: GiveBack) {
        state.refund(now, cost, |open| self.bounds(open.end - 1).0);
    }

    fn charge(&self, state: &mut WindowState, now: Tick, cost: u64) -> Duration {
        let end = || self.bounds(now.as_nanos()).1;
        state.charge(self.quota.limit(), now, cost, end)
    }

    fn rescale(&self, state: &mut WindowState, from: &Self, now: Tick) {
        if (self.anchor, &self.calendar) != (from.anchor, &from.calendar) {
            *state = used_as(self, from.units_used(state, now), now);
        }
    }

    fn forgettable_at(&self, state: &WindowState) -> Tick {
        if state.used == 0 {
            return Tick::ZERO;
        }
        Tick::from_nanos(state.end)
    }

    fn settings_fields(&mut self, fields: &mut Fields<'_>) {
        fields.tag(11);
        let mut quota = self.quota;
        let mut zone = Some(self.calendar.zone());
        let before = (quota, zone);
        fields.plain_quota(&mut quota);
        fields.setting(&ZONE, &mut zone);
        fields.setting(&ANCHOR, &mut self.anchor);
        if (quota, zone) != before {
            match Calendar::try_new(&quota, &zone_name(zone.unwrap_or_default())) {
                Ok(calendar) => (self.quota, self.calendar) = (quota, calendar),
                Err(error) => fields.refuse(error),
            }
        }
        fields.kernel(|now| {
            let (start, end) = self.window_at(now.as_nanos() / SECOND);
            let before = self.window_at(start.saturating_sub(1)).0;
            Kernel::Cells(Cells {
                limit: self.quota.limit(),
                length: 0,
                offset: 0,
                count: 1,
                division: Division::Calendar {
                    name: format!(
                        "{:?}/{}/{}",
                        self.quota.period(),
                        zone_name(self.calendar.zone()),
                        self.anchor.unwrap_or(1)
                    ),
                    starts: [before, start, end, self.window_at(end).1],
                },
            })
        });
    }

    fn state_fields(&self, state: &mut WindowState, fields: &mut Fields<'_>) {
        fields.u64(&mut state.end);
        fields.require(state.end <= LAST * SECOND);
        let Moved { from, to } = fields.moved;
        // The window that is open on the clock of the process that wrote the state is the one of this process.
        if from != to {
            let end = |at: Tick| self.bounds(at.as_nanos()).1;
            state.end = if state.end < end(from) { 0 } else { end(to) };
        }
        fields.count(&mut state.used);
    }
}
