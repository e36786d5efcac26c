//! Days, weeks and months in a time zone.
//!
//! A window begins at the first instant of its first day: at midnight, or when the clocks of the zone pass
//! midnight if they are set forward over it. A day whose clocks are set forward or back has 23 or 25 hours.
//! If they are set back over midnight, its first pass counts, so windows never overlap.

use std::time::Duration;

use jiff::civil::Date;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, ToSpan};

use crate::error::ConfigError;
use crate::quota::{MONTH, Quota};

const DAY: Duration = Duration::from_secs(86_400);
const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// Which days begin a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Calendar {
    unit: Unit,
    zone: TimeZone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Day,
    Week,
    Month,
}

impl Calendar {
    /// The units of the quota's period in a zone.
    pub(super) fn try_new(quota: &Quota, zone: &str) -> Result<Self, ConfigError> {
        let unit = match quota.period() {
            DAY => Unit::Day,
            WEEK => Unit::Week,
            MONTH => Unit::Month,
            _ => {
                let allowed = "a day, a week or a month, such as 1000/month";
                return Err(ConfigError::out_of_range("period", quota, allowed));
            }
        };
        let zone = TimeZoneDatabase::bundled().get(zone).map_err(|_| {
            let allowed = "the name of a time zone, such as Europe/Berlin or UTC";
            ConfigError::out_of_range("zone", format_args!("{zone:?}"), allowed)
        })?;
        Ok(Self { unit, zone })
    }

    /// The number of the zone.
    pub(super) fn zone(&self) -> u64 {
        digest(self.zone.iana_name().unwrap_or_default())
    }

    /// The window that contains a second since 1970, as its first second and that of the next window. `None`
    /// beyond the year 9999.
    pub(super) fn window(&self, anchor: u64, second: u64) -> Option<(u64, u64)> {
        let now = Timestamp::from_second(i64::try_from(second).ok()?).ok()?;
        let anchor = i8::try_from(anchor).ok()?;
        let mut day = self.first_day(anchor, self.zone.to_datetime(now).date())?;
        let mut start = self.first_second(day)?;
        loop {
            day = self.next_first_day(anchor, day)?;
            let end = self.first_second(day)?;
            // Clocks that are set back over midnight show the date of a window that is over.
            if end > second {
                return Some((start, end));
            }
            start = end;
        }
    }

    /// The first day of the window of `date`.
    fn first_day(&self, anchor: i8, date: Date) -> Option<Date> {
        match self.unit {
            Unit::Day => Some(date),
            Unit::Week => {
                let since = (date.weekday().to_monday_one_offset() - anchor).rem_euclid(7);
                date.checked_sub(since.days()).ok()
            }
            Unit::Month => match in_month_of(anchor, date)? {
                first if first <= date => Some(first),
                _ => in_month_of(anchor, date.first_of_month().yesterday().ok()?),
            },
        }
    }

    /// The first day of the window after the one that begins on `first`.
    fn next_first_day(&self, anchor: i8, first: Date) -> Option<Date> {
        match self.unit {
            Unit::Day => first.tomorrow().ok(),
            Unit::Week => first.checked_add(7.days()).ok(),
            Unit::Month => in_month_of(anchor, first.last_of_month().tomorrow().ok()?),
        }
    }

    /// The first second of a day.
    fn first_second(&self, date: Date) -> Option<u64> {
        let midnight = self.zone.to_ambiguous_timestamp(date.at(0, 0, 0, 0));
        let is_skipped = matches!(midnight.offset(), AmbiguousOffset::Gap { .. });
        let first = if is_skipped {
            // The clocks were set forward then.
            let later = midnight.later().ok()?.checked_add(1.second()).ok()?;
            self.zone.preceding(later).next()?.timestamp()
        } else {
            midnight.earlier().ok()?
        };
        Some(u64::try_from(first.as_second()).unwrap_or(0))
    }
}

/// The anchor in the month of `date`: its last day if the month is shorter.
fn in_month_of(anchor: i8, date: Date) -> Option<Date> {
    let day = anchor.min(date.days_in_month());
    date.with().day(day).build().ok()
}

/// The number of a zone: a digest of its name, which is the same in every process.
pub(crate) fn zone_number(name: &str) -> Result<u64, ConfigError> {
    let quota = Quota::per_day(1);
    Calendar::try_new(&quota, name).map(|calendar| calendar.zone())
}

/// The name of the zone of this number, or the number if there is none.
pub(crate) fn zone_name(number: u64) -> String {
    let zones = TimeZoneDatabase::bundled();
    let mut names = zones.available();
    let found = names.find(|name| digest(name.as_str()) == number);
    found.map_or_else(|| number.to_string(), |name| name.as_str().to_owned())
}

/// FNV-1a, below 2^63.
fn digest(name: &str) -> u64 {
    let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, mix) >> 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_zone_has_a_number_of_its_own() {
        let zones = TimeZoneDatabase::bundled();
        let names: Vec<_> = zones.available().map(|name| name.to_string()).collect();
        assert!(names.len() > 500, "{}", names.len());
        for name in &names {
            let number = zone_number(name).expect("a zone");
            assert_eq!(zone_name(number), *name);
        }
    }
}
