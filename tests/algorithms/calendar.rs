//! Days, weeks and months against a naive calendar, which knows the rules of some time zones itself.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use tower_throttle::algorithm::{
    Algorithm, Cost, GiveBack, settings_from_bytes, settings_to_bytes, state_from_bytes,
    state_to_bytes,
};
use tower_throttle::clock::Tick;
use tower_throttle::{CalendarWindow, Decision, Limiter, Quota};

use crate::random::{Random, seeds};

const SECOND: u64 = 1_000_000_000;
const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
/// The first and the last day of the tests, in days since 1970: from 2023 to 2037.
const FROM: i64 = 19_358;
const TO: i64 = 24_800;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zone {
    Utc,
    Berlin,
    NewYork,
    Kolkata,
    /// Its clocks pass midnight when they are set forward, and are set back from midnight to 23:00.
    Santiago,
}

const ZONES: [(Zone, &str); 5] = [
    (Zone::Utc, "UTC"),
    (Zone::Berlin, "Europe/Berlin"),
    (Zone::NewYork, "America/New_York"),
    (Zone::Kolkata, "Asia/Kolkata"),
    (Zone::Santiago, "America/Santiago"),
];

/// A day of the naive calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Date {
    year: i64,
    month: i64,
    day: i64,
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The date of a day since 1970, from a list that is counted day by day.
fn date(days: i64) -> Date {
    static DATES: OnceLock<Vec<Date>> = OnceLock::new();
    let next = |Date { year, month, day }: &Date| {
        let (year, month, day) = match (*month, *day) {
            (12, 31) => (year + 1, 1, 1),
            (month, day) if day == days_in_month(*year, month) => (*year, month + 1, 1),
            (month, day) => (*year, month, day + 1),
        };
        Some(Date { year, month, day })
    };
    let first = Date {
        year: 1970,
        month: 1,
        day: 1,
    };
    let all = || {
        std::iter::successors(Some(first), next)
            .take(26_000)
            .collect()
    };
    DATES.get_or_init(all)[usize::try_from(days).expect("after 1970")]
}

/// 1 is Monday. The first day of 1970 was a Thursday.
fn weekday(days: i64) -> i64 {
    (days + 3).rem_euclid(7) + 1
}

/// The first Sunday of a month that is on this day or later, in days since 1970.
fn sunday_from(year: i64, month: i64, day: i64) -> i64 {
    let is_it = |days: &i64| {
        let found = date(*days);
        found.year == year && found.month == month && found.day >= day && weekday(*days) == 7
    };
    let around = (year - 1970) * 365;
    (around..around + 400).find(is_it).expect("a Sunday")
}

/// When the clocks of a zone are set, over all years of the test: the second since 1970, and the offset from
/// then on.
fn changes(zone: Zone) -> Vec<(i64, i64)> {
    let of_year = |year| match zone {
        Zone::Utc => vec![(0, 0)],
        Zone::Kolkata => vec![(0, 5 * HOUR + HOUR / 2)],
        // The last Sundays of March and October, at 01:00 UTC.
        Zone::Berlin => vec![
            (sunday_from(year, 3, 25) * DAY + HOUR, 2 * HOUR),
            (sunday_from(year, 10, 25) * DAY + HOUR, HOUR),
        ],
        // The second Sunday of March and the first of November, at 02:00.
        Zone::NewYork => vec![
            (sunday_from(year, 3, 8) * DAY + 7 * HOUR, -4 * HOUR),
            (sunday_from(year, 11, 1) * DAY + 6 * HOUR, -5 * HOUR),
        ],
        // The Sundays from the 2nd of April at 03:00 UTC, and from the 2nd of September at 04:00 UTC.
        Zone::Santiago => vec![
            (sunday_from(year, 4, 2) * DAY + 3 * HOUR, -4 * HOUR),
            (sunday_from(year, 9, 2) * DAY + 4 * HOUR, -3 * HOUR),
        ],
    };
    // Chile had another rule in 2022, so its years begin in 2023.
    let mut all = match zone {
        Zone::Santiago => vec![(0, -3 * HOUR)],
        _ => vec![],
    };
    all.extend(
        (2022..2039)
            .filter(|year| zone != Zone::Santiago || *year > 2022)
            .flat_map(of_year),
    );
    all
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Day,
    Week,
    Month,
}

/// Mistakes in the naive calendar, which the comparison has to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    /// A day has 24 hours.
    DaysOf24Hours,
    /// A month without the day of the anchor has no window of its own.
    SkippedMonth,
    /// The clocks are never set back to winter.
    EternalSummer,
    /// A week begins on Sunday.
    WeekFromSunday,
    /// February has 28 days.
    NoLeapDay,
    /// A month begins on the 1st.
    NoAnchor,
}

/// The first seconds of all days.
fn first_seconds(zone: Zone, mistake: Option<Mistake>) -> Vec<i64> {
    let mut changes = changes(zone);
    if mistake == Some(Mistake::EternalSummer) {
        changes.retain(|(_, offset)| *offset != HOUR);
    }
    let offset = |at: i64| {
        let before = changes.iter().rev().find(|(from, _)| *from <= at);
        before.map_or(0, |(_, offset)| *offset)
    };
    let first_second = |days: i64| {
        if mistake == Some(Mistake::DaysOf24Hours) {
            return days * DAY - offset(FROM * DAY);
        }
        // Clocks are set at whole quarters of an hour.
        let mut at = (days - 1) * DAY;
        while at + offset(at) < days * DAY {
            at += HOUR / 4;
        }
        at
    };
    (FROM..TO).map(first_second).collect()
}

/// The seconds at which windows begin.
fn starts(zone: Zone, unit: Unit, anchor: i64, mistake: Option<Mistake>) -> Vec<u64> {
    static RIGHT: [OnceLock<Vec<i64>>; 5] = [const { OnceLock::new() }; 5];
    let wrong;
    let firsts = match mistake {
        Some(Mistake::EternalSummer | Mistake::DaysOf24Hours) => {
            wrong = first_seconds(zone, mistake);
            &wrong
        }
        _ => RIGHT[zone as usize].get_or_init(|| first_seconds(zone, None)),
    };
    let is = |one| mistake == Some(one);
    let begins = |days: i64| {
        let Date { year, month, day } = date(days);
        match unit {
            Unit::Day => true,
            Unit::Week if is(Mistake::WeekFromSunday) => weekday(days) == 7,
            Unit::Week => weekday(days) == anchor,
            Unit::Month if is(Mistake::NoAnchor) => day == 1,
            Unit::Month if is(Mistake::SkippedMonth) => day == anchor,
            Unit::Month if is(Mistake::NoLeapDay) && month == 2 => day == anchor.min(28),
            Unit::Month => day == anchor.min(days_in_month(year, month)),
        }
    };
    let days = (FROM..TO).zip(firsts).filter(|(days, _)| begins(*days));
    let second = |(_, second): (i64, &i64)| u64::try_from(*second).expect("after 1970");
    days.map(second).collect()
}

/// A policy, and the windows that it has.
#[derive(Clone, Debug)]
struct Case {
    name: String,
    window: CalendarWindow,
    starts: Vec<u64>,
}

fn case(limit: u64, random: &mut Random, mistake: Option<Mistake>) -> Case {
    let (zone, zone_name) = *random.pick(&ZONES);
    let unit = *random.pick(&[Unit::Day, Unit::Week, Unit::Month]);
    let (quota, most) = match unit {
        Unit::Day => (Quota::per_day(limit), 1),
        Unit::Week => (Quota::per_week(limit), 7),
        Unit::Month => (Quota::per_month(limit), 31),
    };
    let anchor = match random.below(3) {
        0 => most,
        _ => 1 + random.below(most),
    };
    let mut window = CalendarWindow::new(quota, zone_name).expect("a zone");
    if unit != Unit::Day && (anchor > 1 || random.below(2) == 0) {
        window = window.anchor(u8::try_from(anchor).expect("small"));
    }
    window.validate().expect("valid");
    Case {
        name: format!("{unit:?} from {anchor} in {zone_name}"),
        window,
        starts: starts(zone, unit, i64::try_from(anchor).expect("small"), mistake),
    }
}

impl Case {
    /// The number of the window of a moment, and its end in nanoseconds.
    fn window_of(&self, now: u64) -> (usize, u64) {
        let after = self.starts.partition_point(|start| start * SECOND <= now);
        (after, self.starts[after] * SECOND)
    }

    /// A moment, often around the end of a window, and the start of one that was not moved for long.
    fn moment(&self, random: &mut Random) -> u64 {
        let index = 1 + random.below(self.starts.len() as u64 - 4);
        let start = self.starts[usize::try_from(index).expect("few")] * SECOND;
        match random.below(4) {
            0 => start,
            1 => start - 1,
            2 => start + random.below(2 * 3_600 * SECOND),
            _ => start + random.below(31 * 86_400 * SECOND),
        }
    }
}

fn at(ns: u64) -> Tick {
    Tick::from_nanos(ns)
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).expect("short")
}

/// The first difference from the naive calendar in a random trace.
fn disagreement(seed: u64, mistake: Option<Mistake>) -> Option<String> {
    let mut random = Random::new(seed);
    let limit = 1 + random.below(9);
    let case = case(limit, &mut random, mistake);
    let window = &case.window;
    let mut now = case.moment(&mut random);
    let mut state = window.fresh(at(now));
    // What is used per window, of which the newest one counts.
    let mut used = BTreeMap::<usize, u64>::new();
    let mut taken = Vec::new();
    let last = case.starts[case.starts.len() - 2] * SECOND;
    for _ in 0..30 {
        now = match random.below(5) {
            0 => now,
            1 => case.window_of(now).1 - random.below(2),
            2 => now
                .saturating_sub(random.below(86_400 * SECOND))
                .max(case.starts[0] * SECOND),
            _ => now + random.below(2 * 86_400 * SECOND),
        };
        if now >= last {
            break;
        }
        let (own, _) = case.window_of(now);
        let newest = used
            .last_key_value()
            .map_or(own, |(newest, _)| own.max(*newest));
        let end = case.starts[newest] * SECOND;
        let count = used.get(&newest).copied().unwrap_or(0);
        let cost = random.below(limit + 2);
        let fault = |what: String| Some(format!("{}: {what} at {now}", case.name));
        match random.below(6) {
            0 if !taken.is_empty() => {
                let place = usize::try_from(random.below(taken.len() as u64)).expect("few");
                let (taken_at, units): (u64, u64) = taken.swap_remove(place);
                let cost = Cost::new(units, at(taken_at));
                window.refund(&mut state, at(now), cost, GiveBack::Refund);
                if case.window_of(taken_at).0 >= newest && used.contains_key(&newest) {
                    used.insert(newest, count.saturating_sub(units));
                }
            }
            1 => {
                let debt = nanos(window.charge(&mut state, at(now), cost));
                if cost > 0 {
                    used.insert(newest, count + cost);
                }
                let expected = if count + cost > limit { end - now } else { 0 };
                if debt != expected {
                    return fault(format!("a debt of {debt} ns, not {expected}"));
                }
            }
            _ => {
                let decision = window.decide(&mut state, at(now), cost);
                let passes = cost == 0 || count + cost <= limit;
                let left = count + if passes { cost } else { 0 };
                if passes && cost > 0 {
                    used.insert(newest, left);
                    taken.push((now, cost));
                }
                let expected = Expected {
                    is_admitted: passes,
                    remaining: limit.saturating_sub(left),
                    reset: if left > 0 { end - now } else { 0 },
                    retry: (!passes && cost <= limit).then_some(end - now),
                };
                if expected != Expected::of(&decision) {
                    return fault(format!("{decision:?}, not {expected:?}"));
                }
            }
        }
        let bytes = state_to_bytes(window, &state).expect("a state");
        if state_from_bytes(window, &bytes) != Some(state) {
            return fault(format!("{state:?} is read as another state"));
        }
    }
    None
}

#[derive(Debug, PartialEq, Eq)]
struct Expected {
    is_admitted: bool,
    remaining: u64,
    reset: u64,
    retry: Option<u64>,
}

impl Expected {
    fn of(decision: &Decision) -> Self {
        Self {
            is_admitted: decision.is_admitted(),
            remaining: decision.remaining(),
            reset: nanos(decision.reset_after),
            retry: decision.retry_after.map(nanos),
        }
    }
}

/// Shows promise 318.
#[test]
fn windows_of_the_calendar_agree_with_a_naive_one() {
    for seed in seeds(300) {
        assert_eq!(disagreement(seed, None), None, "seed {seed}");
    }
}

/// Shows promise 318.
#[test]
fn a_mistake_in_the_calendar_is_found() {
    for mistake in [
        Mistake::DaysOf24Hours,
        Mistake::SkippedMonth,
        Mistake::EternalSummer,
        Mistake::WeekFromSunday,
        Mistake::NoLeapDay,
        Mistake::NoAnchor,
    ] {
        let found = (0..400).any(|seed| disagreement(seed, Some(mistake)).is_some());
        assert!(found, "{mistake:?}");
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
fn settings_are_checked_and_read_back() {
    let per_month = Quota::per_month(10);
    let berlin = CalendarWindow::new(per_month, "Europe/Berlin")
        .expect("a zone")
        .anchor(15);
    let bytes = settings_to_bytes(&berlin).expect("settings");
    let utc = CalendarWindow::new(Quota::per_day(1), "UTC").expect("UTC");
    assert_eq!(settings_from_bytes(&utc, &bytes), Some(berlin.clone()));
    assert_ne!(
        settings_to_bytes(&berlin.clone().anchor(14)),
        Some(bytes.clone())
    );

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
