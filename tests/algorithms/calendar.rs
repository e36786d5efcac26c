//! Days, weeks and months against a naive calendar, which asks every quarter of an hour for the date that a zone shows.

use std::sync::OnceLock;
use std::time::Duration;

use jiff::civil::Date;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, ToSpan, civil::date};
use tower_throttle::algorithm::Algorithm;
use tower_throttle::clock::Tick;
use tower_throttle::{CalendarWindow, Limiter, Quota};

use crate::random::Random;
use crate::{at, nanos};

const SECOND: u64 = 1_000_000_000;

/// The clocks of Santiago pass midnight when they are set forward, and are set back from midnight to 23:00.
const ZONES: [&str; 5] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "America/Santiago",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Day,
    Week,
    Month,
}

/// The days of 2023 to 2037, each with the first quarter of an hour at which the zone shows it.
fn days(zone: &TimeZone) -> Vec<(Date, u64)> {
    let shown = |second: u64| {
        let second = i64::try_from(second).expect("soon");
        let instant = Timestamp::from_second(second).expect("soon");
        zone.to_datetime(instant).date()
    };
    // The 31st of December 2022 in UTC.
    let (mut at, mut days) = (1_672_444_800, Vec::new());
    for day in date(2023, 1, 1).series(1.day()).take(15 * 365) {
        while shown(at) < day {
            at += 900;
        }
        days.push((day, at));
        at += 22 * 3_600;
    }
    days
}

/// The nanoseconds at which windows begin.
fn starts(zone: usize, unit: Unit, anchor: i8) -> Vec<u64> {
    static DAYS: [OnceLock<Vec<(Date, u64)>>; 5] = [const { OnceLock::new() }; 5];
    let days = DAYS[zone].get_or_init(|| {
        let zone = TimeZoneDatabase::bundled().get(ZONES[zone]);
        days(&zone.expect("a zone"))
    });
    let begins = |day: Date| match unit {
        Unit::Day => true,
        Unit::Week => day.weekday().to_monday_one_offset() == anchor,
        Unit::Month => day.day() == anchor.min(day.days_in_month()),
    };
    let first = days.iter().filter(|(day, _)| begins(*day));
    first.map(|(_, second)| *second * SECOND).collect()
}

/// Windows of the calendar, and the nanoseconds at which they begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Windows {
    pub(crate) starts: &'static [u64],
    zone: &'static str,
    anchor: Option<u8>,
}

impl Windows {
    /// Some windows, and the length of their unit.
    pub(crate) fn random(random: &mut Random) -> (Self, u64) {
        let zone = random.index(ZONES.len());
        let (unit, quota, most) = *random.pick(&[
            (Unit::Day, Quota::per_day(1), 1),
            (Unit::Week, Quota::per_week(1), 7),
            (Unit::Month, Quota::per_month(1), 31),
        ]);
        let anchor = match random.below(3) {
            0 => most,
            _ => 1 + random.below(most),
        };
        let is_told = unit != Unit::Day && (anchor > 1 || random.below(2) == 0);
        let starts = starts(zone, unit, i8::try_from(anchor).expect("small"));
        let windows = Self {
            starts: starts.leak(),
            zone: ZONES[zone],
            anchor: is_told.then(|| u8::try_from(anchor).expect("small")),
        };
        (windows, nanos(quota.period()))
    }

    pub(crate) fn algorithm(self, quota: Quota) -> CalendarWindow {
        let window = CalendarWindow::new(quota, self.zone).expect("a zone");
        match self.anchor {
            Some(day) => window.anchor(day),
            None => window,
        }
    }
}

/// Shows promise 318.
#[test]
fn every_zone_has_windows_without_a_gap() {
    // A minute in the tables of each of them, and years that only their rules know.
    for zone in [
        "Africa/Cairo",
        "Asia/Beirut",
        "America/Havana",
        "Australia/Lord_Howe",
        "Pacific/Apia",
    ] {
        for (quota, days) in [
            (Quota::per_day(1), 1),
            (Quota::per_week(1), 7),
            (Quota::per_month(1), 31),
        ] {
            let window = CalendarWindow::new(quota, zone).expect("a zone");
            let reset_at = |ns: u64| {
                let mut state = window.fresh(at(ns));
                window.decide(&mut state, at(ns), 1).reset_after
            };
            let mut now = 1_167_609_600; // 2007
            while now < 9_000_000_000 {
                let reset = reset_at(now * SECOND);
                let step = reset.as_secs();
                // The clocks of each of these zones are set back by an hour at most.
                let longest = days * 86_400 + 3_600;
                assert!(
                    reset.subsec_nanos() == 0 && (1..=longest).contains(&step),
                    "{zone}: {step} s from {now} on"
                );
                let last = reset_at((now + step) * SECOND - 1);
                assert_eq!(last, Duration::from_nanos(1), "{zone}: {now}");
                now += step * if quota == Quota::per_day(1) { 1 } else { 7 };
                if quota == Quota::per_day(1) && now > 2_000_000_000 {
                    now += 40 * 86_400;
                }
            }
        }
    }
}

/// Shows promise 318.
#[test]
fn settings_are_checked() {
    let per_month = Quota::per_month(10);
    let berlin = CalendarWindow::new(per_month, "Europe/Berlin").expect("a zone");
    let utc = CalendarWindow::new(Quota::per_day(1), "UTC").expect("UTC");
    let refused = |window: CalendarWindow| window.validate().unwrap_err().to_string();
    assert_eq!(
        refused(utc.clone().anchor(1)),
        "anchor: 1 is not allowed; give no anchor for a day, which begins at midnight"
    );
    assert!(refused(berlin.clone().anchor(32)).contains("a number from 1 to 31"));
    let week = utc.with_quota(Quota::per_week(1)).expect("weeks");
    assert!(refused(week.anchor(8)).ends_with("a weekday from 1 (Monday) to 7 (Sunday)"));
    let hour = CalendarWindow::new(Quota::per_hour(1), "UTC").unwrap_err();
    assert_eq!(
        hour.to_string(),
        "period: 1/h is not allowed; give a day, a week or a month, such as 1000/month"
    );
    assert!(berlin.with_quota(Quota::per_hour(1)).is_err());
    let zone = CalendarWindow::new(per_month, "Europe/Berln").unwrap_err();
    assert!(
        zone.to_string()
            .starts_with("zone: \"Europe/Berln\" is not allowed")
    );
}

/// Shows promise 318.
#[test]
fn a_change_of_zone_or_anchor_keeps_what_was_used() {
    let month = CalendarWindow::new(Quota::per_month(10), "UTC").expect("UTC");
    let now = 1_775_001_600; // 2026-04-01
    let mut state = month.fresh(Tick::ZERO);
    assert!(month.decide(&mut state, at(now * SECOND), 4).is_admitted());
    let berlin = CalendarWindow::new(Quota::per_month(10), "Europe/Berlin").expect("a zone");
    for (changed, seconds) in [
        (month.clone().anchor(15), 14 * 86_400),
        (
            month.with_quota(Quota::per_month(7)).expect("a month"),
            30 * 86_400,
        ),
        // There May begins two hours earlier.
        (berlin, 30 * 86_400 - 2 * 3_600),
    ] {
        let mut state = state;
        changed.rescale(&mut state, &month, at(now * SECOND));
        let decision = changed.peek(&state, at(now * SECOND), 1);
        assert_eq!(decision.limit - decision.remaining(), 4);
        assert_eq!(decision.reset_after, Duration::from_secs(seconds));
    }
    // A window that is over is not reopened by a longer one.
    let later = (now + 31 * 86_400) * SECOND;
    month
        .clone()
        .anchor(15)
        .rescale(&mut state, &month, at(later));
    assert_eq!(month.peek(&state, at(later), 1).remaining(), 10);
}

/// A limit by the default clock resets when the wall clock shows the end of the day.
///
/// Shows promise 318.
#[test]
fn the_default_clock_has_the_date_of_the_wall_clock() {
    let limiter = Limiter::new(CalendarWindow::new(Quota::per_day(9), "UTC").expect("UTC"));
    let unix = || {
        std::time::SystemTime::UNIX_EPOCH
            .elapsed()
            .expect("after 1970")
    };
    let (before, reset, after) = (unix(), limiter.check(1).reset_after, unix());
    let left =
        |now: Duration| Duration::from_nanos(86_400 * SECOND - nanos(now) % (86_400 * SECOND));
    let second = Duration::from_secs(1);
    let is_close = reset <= left(before) + second && reset + second >= left(after);
    // Midnight may pass in between.
    assert!(
        is_close || left(after) > left(before),
        "{reset:?}, {before:?}"
    );
}
