//! Dates of HTTP: the three forms that RFC 9110 has clients accept.

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// The seconds since 1970 of `Sun, 06 Nov 1994 08:49:37 GMT`, `Sunday, 06-Nov-94 08:49:37 GMT` or
/// `Sun Nov  6 08:49:37 1994`.
pub(super) fn unix_seconds_of(date: &str) -> Option<u64> {
    let mut parts = date
        .split([' ', ',', '-', ':'])
        .filter(|part| !part.is_empty());
    let parts: [&str; 8] = std::array::from_fn(|_| parts.next().unwrap_or_default());
    let [_, day, month, year, hour, minute, second, "GMT"] = (match parts {
        [name, month, day, hour, minute, second, year, ""] => {
            [name, day, month, year, hour, minute, second, "GMT"]
        }
        other => other,
    }) else {
        return None;
    };
    let number = |text: &str| text.parse::<u16>().ok().map(u64::from);
    let month = MONTHS.iter().position(|name| *name == month)?;
    let (day, hour, minute) = (number(day)?, number(hour)?, number(minute)?);
    let second = number(second)?;
    let year = match number(year)? {
        short @ 0..70 => 2000 + short,
        short @ 70..100 => 1900 + short,
        full @ 1970..=9999 => full,
        _ => return None,
    };
    if !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Years begin in March, so that a leap day is the last day of its year.
    let (year, month) = match month as u64 {
        month @ 0..=1 => (year - 1, month + 10),
        month => (year, month - 2),
    };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let since_1970 = days.checked_sub(719_468)?;
    Some(since_1970 * 86_400 + hour * 3_600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms_of_http_dates_are_read() {
        for (date, seconds) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
            ("Sun Nov  6 08:49:37 1994", 784_111_777),
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Thu, 29 Feb 2024 12:00:00 GMT", 1_709_208_000),
            ("Fri, 01 Mar 2024 00:00:00 GMT", 1_709_251_200),
            ("Sun, 01 Mar 2026 00:00:00 GMT", 1_772_323_200),
            ("Fri, 31 Dec 1999 23:59:60 GMT", 946_684_800),
            ("Friday, 01-Mar-24 00:00:00 GMT", 1_709_251_200),
            ("Fri, 31 Dec 9999 23:59:59 GMT", 253_402_300_799),
        ] {
            assert_eq!(unix_seconds_of(date), Some(seconds), "{date}");
        }
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            "tomorrow",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 32 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 08:60:37 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Sun, 06 Non 1994 08:49:37 GMT",
            "Sun, 06 Nov 1694 08:49:37 GMT",
            "Sun, 06 Nov 99999 08:49:37 GMT",
            "Sun, -6 Nov 1994 08:49:37 UTC",
        ] {
            assert_eq!(unix_seconds_of(text), None, "{text}");
        }
    }
}
