//! The common and the combined log format: one request per line.
//!
//! ```text
//! 192.0.2.7 - ann [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 2326 "referer" "agent"
//! ```
//!
//! The client's address is the key. Times count from the Unix epoch, so aligned windows begin at UTC
//! boundaries. Everything after the size is ignored.

use crate::step::{Op, Step};

const TIME: &str = "a time such as [10/Oct/2000:13:55:36 -0700]";
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
const SECOND: u64 = 1_000_000_000;

/// Parses one line.
pub(crate) fn parse(line: &[u8]) -> Result<Step, String> {
    let line = std::str::from_utf8(line).map_err(|_| "expected UTF-8 text")?;
    let line = line.trim_end_matches(['\r', '\n']);
    let (client, rest) = line
        .split_once(' ')
        .filter(|(client, _)| !client.is_empty())
        .ok_or("expected a client's address and a space at the start of the line")?;
    let (names, rest) = rest
        .split_once(" [")
        .filter(|(names, _)| names.contains(' '))
        .ok_or_else(|| format!("expected two names after the address, then {TIME}"))?;
    let _ = names;
    let (stamp, rest) = rest
        .split_once(']')
        .ok_or_else(|| format!("expected {TIME}, found no end of it"))?;
    let t_ns = nanos(stamp).ok_or_else(|| {
        format!(
            "expected {TIME} between 1970 and 2262, found {:?}",
            format!("[{stamp}]")
        )
    })?;
    after_the_time(rest).ok_or("expected \"request\", a status and a size or - after the time")?;
    Ok(Step {
        t_ns,
        key: Some(client.to_owned()),
        n: 1,
        op: Op::Check { id: None },
    })
}

/// Checks that a request, a status and a size follow, so that other formats are refused.
fn after_the_time(rest: &str) -> Option<()> {
    let request = rest.strip_prefix(" \"")?;
    let mut escaped = false;
    let end = request.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    })?;
    let mut words = request[end + 1..].strip_prefix(' ')?.split(' ');
    let status = words.next()?;
    let size = words.next()?;
    let digits = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    (status.len() == 3 && digits(status) && (size == "-" || digits(size))).then_some(())
}

/// Nanoseconds from the Unix epoch to `10/Oct/2000:13:55:36 -0700`.
fn nanos(stamp: &str) -> Option<u64> {
    let (date, zone) = stamp.split_once(' ')?;
    let (date, time) = date.split_once(':')?;

    let mut date = date.split('/');
    let day = number(date.next()?, 2)?;
    let month = date.next()?;
    let month = (1..).zip(MONTHS).find(|(_, name)| *name == month)?.0;
    let year = number(date.next()?, 4)?;

    let mut time = time.split(':');
    let hour = number(time.next()?, 2)?;
    let minute = number(time.next()?, 2)?;
    let second = number(time.next()?, 2)?;

    let east = match zone.as_bytes().first()? {
        b'+' => true,
        b'-' => false,
        _ => return None,
    };
    let zone = number(&zone[1..], 4)?;
    let (zone_hours, zone_minutes) = (zone / 100, zone % 100);

    let in_range = (1970..=2262).contains(&year)
        && (1..=days_in(month, year)).contains(&day)
        && hour < 24
        && minute < 60
        // 60 is a leap second.
        && second <= 60
        && zone_hours < 24
        && zone_minutes < 60;
    if !in_range || date.next().is_some() || time.next().is_some() {
        return None;
    }
    let local = ((days_before(month, year) + day - 1) * 24 + hour) * 3600 + minute * 60 + second;
    let offset = zone_hours * 3600 + zone_minutes * 60;
    let utc = if east {
        local.checked_sub(offset)?
    } else {
        local + offset
    };
    utc.checked_mul(SECOND)
}

/// A number of exactly `digits` digits.
fn number(text: &str, digits: usize) -> Option<u64> {
    let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

/// Days from the Unix epoch to the first of the month.
fn days_before(month: u64, year: u64) -> u64 {
    let whole_years: u64 = (1970..year)
        .map(|year| 365 + u64::from(is_leap(year)))
        .sum();
    whole_years + (1..month).map(|month| days_in(month, year)).sum::<u64>()
}

fn days_in(month: u64, year: u64) -> u64 {
    match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}
