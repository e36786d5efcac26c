//! Limits per period, with bursts.

use std::{fmt, str::FromStr, time::Duration};

use crate::error::{ConfigError, expect_valid};

/// A limit per period, and optionally a burst.
///
/// `per_second(20)` is twenty per second. A quota has a text form: `"20/s"`, `"100/min"`,
/// `"5/10s"`, `"10/s; burst=50"`. Parsing the text of a quota returns the same quota.
///
/// # Bursts
/// The burst is the capacity of a bucket: of [`TokenBucket`](crate::TokenBucket),
/// [`LeakyBucket`](crate::LeakyBucket) as a meter and [`Gcra`](crate::algorithm). Without a burst
/// the capacity is the limit. Windows, logs and [`WarmUp`](crate::WarmUp) do not support a burst:
/// building a limiter from one whose quota has a burst is an error.
///
/// # Weeks
/// An aligned window of a week begins on Thursday at 00:00 UTC, in this process and in Redis,
/// because the Unix epoch was a Thursday. An offset of four days makes it begin on Monday:
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{FixedWindow, Limiter};
///
/// const DAY: u64 = 86_400;
/// let window = FixedWindow::new("1000/week".parse()?).offset(Duration::from_secs(4 * DAY));
/// assert!(Limiter::new(window).check(1).is_admitted());
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tower_throttle::Quota;
///
/// let quota = Quota::per_second(10).burst(50);
/// assert_eq!(quota.to_string(), "10/s; burst=50");
/// assert_eq!("10/s; burst=50".parse(), Ok(quota));
/// assert_eq!(Quota::per(5, Duration::from_secs(10)).to_string(), "5/10s");
/// assert_eq!(Quota::per_minute(100).capacity(), 100);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota {
    /// 1 to `MAX_COUNT`.
    limit: u64,
    /// 1 to `MAX_PERIOD_NS` nanoseconds.
    period: u64,
    /// 1 to `MAX_COUNT`, and refilled within `MAX_PERIOD_NS` nanoseconds.
    burst: Option<u64>,
}

/// What a key may do: its own quota, no limit, nothing at all, or what the limit says for all keys.
///
/// The answer of the [`Lookup`](crate::store::Lookup) of [`Quotas`](crate::store::Quotas), and what an override in a
/// policy file says.
///
/// ```
/// use tower_throttle::{Quota, store::Plan};
///
/// /// A row of a table of plans: the requests per minute, and whether the customer has paid.
/// fn plan(row: Option<(u64, bool)>) -> Plan {
///     match row {
///         None => Plan::Default,
///         Some((_, false) | (0, _)) => Plan::Blocked,
///         Some((requests, true)) => Plan::Quota(Quota::per_minute(requests)),
///     }
/// }
///
/// assert_eq!(plan(Some((0, true))), Plan::Blocked);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Plan {
    /// The quota of the limit.
    #[default]
    Default,
    /// This quota.
    Quota(Quota),
    /// The tier of this name; see [`Quotas::tier`](crate::store::Quotas::tier).
    Tier(&'static str),
    /// Each request passes, and none is counted.
    Unlimited,
    /// Each request is denied, without a time after which it may be retried.
    Blocked,
}

/// Rust, Lua, JSON and files represent counts up to 2^53 - 1 exactly.
pub(crate) const MAX_COUNT: u64 = (1 << 53) - 1;
/// Periods, and the time to refill a whole burst, stay within 10 years, which are less than 2^59 ns. So every
/// product of two numbers fits 128 bits, and the sum of any time and any span 64.
pub(crate) const MAX_PERIOD_NS: u64 = 120 * MONTH_NS;

const ALLOWED_COUNTS: &str = "a number from 1 to 9007199254740991";
const ALLOWED_PERIODS: &str = "a period from 1 ns to 10 years";
const ALLOWED_BURSTS: &str = "a number from 1 that the limit refills within 10 years";

const SECOND: u64 = 1_000_000_000;
/// A month on average, of which 4,800 are 400 years. [`CalendarWindow`](crate::CalendarWindow) makes it one
/// of the calendar.
pub(crate) const MONTH: Duration = Duration::from_nanos(MONTH_NS);
const MONTH_NS: u64 = 2_629_746 * SECOND;

/// The spellings of each unit and its length in nanoseconds. The first spelling is printed.
const UNITS: [(&[&str], u64); 9] = [
    (&["month", "months"], MONTH_NS),
    (&["w", "week", "weeks"], 7 * 86_400 * SECOND),
    (&["d", "day", "days"], 86_400 * SECOND),
    (&["h", "hr", "hrs", "hour", "hours"], 3_600 * SECOND),
    (&["min", "m", "mins", "minute", "minutes"], 60 * SECOND),
    (&["s", "sec", "secs", "second", "seconds"], SECOND),
    (&["ms", "millisecond", "milliseconds"], 1_000_000),
    (
        &["us", "\u{b5}s", "\u{3bc}s", "microsecond", "microseconds"],
        1_000,
    ),
    (&["ns", "nanosecond", "nanoseconds"], 1),
];

impl Quota {
    /// `limit` per second.
    ///
    /// # Panics
    /// If `limit` is 0 or above 2^53 - 1.
    #[track_caller]
    pub const fn per_second(limit: u64) -> Self {
        Self::from_period_ns(limit, SECOND)
    }

    /// `limit` per minute.
    ///
    /// # Panics
    /// If `limit` is 0 or above 2^53 - 1.
    #[track_caller]
    pub const fn per_minute(limit: u64) -> Self {
        Self::from_period_ns(limit, 60 * SECOND)
    }

    /// `limit` per hour.
    ///
    /// # Panics
    /// If `limit` is 0 or above 2^53 - 1.
    #[track_caller]
    pub const fn per_hour(limit: u64) -> Self {
        Self::from_period_ns(limit, 3_600 * SECOND)
    }

    /// `limit` per day.
    ///
    /// # Panics
    /// If `limit` is 0 or above 2^53 - 1.
    #[track_caller]
    pub const fn per_day(limit: u64) -> Self {
        Self::from_period_ns(limit, 86_400 * SECOND)
    }

    /// `limit` per week.
    ///
    /// # Panics
    /// If `limit` is 0 or above 2^53 - 1.
    #[track_caller]
    pub const fn per_week(limit: u64) -> Self {
        Self::from_period_ns(limit, 7 * 86_400 * SECOND)
    }

    /// `limit` per month: of the calendar for [`CalendarWindow`](crate::CalendarWindow), and for buckets and
    /// logs of 30.436875 days, a month on average.
    ///
    /// # Panics
    /// If `limit` is 0 or above 2^53 - 1.
    #[track_caller]
    pub const fn per_month(limit: u64) -> Self {
        Self::from_period_ns(limit, MONTH_NS)
    }

    /// `limit` per `period`.
    ///
    /// # Panics
    /// If either is zero or out of range. `Quota::try_from((limit, period))` returns an error instead, for numbers from
    /// outside of the program, and so does `Quota::try_from((limit, period, burst))`.
    #[track_caller]
    pub fn per(limit: u64, period: Duration) -> Self {
        expect_valid(Self::try_per(limit, period))
    }

    pub(crate) fn try_per(limit: u64, period: Duration) -> Result<Self, ConfigError> {
        if limit == 0 || limit > MAX_COUNT {
            return Err(ConfigError::out_of_range("limit", limit, ALLOWED_COUNTS));
        }
        match u64::try_from(period.as_nanos()) {
            Ok(period @ 1..=MAX_PERIOD_NS) => Ok(Self::from_period_ns(limit, period)),
            _ => Err(ConfigError::out_of_range(
                "period",
                format!("{period:?}"),
                ALLOWED_PERIODS,
            )),
        }
    }

    /// Sets the burst: the capacity of a bucket. [Bursts](Self#bursts) lists the algorithms that
    /// support it.
    ///
    /// # Panics
    /// If it is zero, or so large that refilling it takes more than 10 years.
    #[must_use]
    #[track_caller]
    pub const fn burst(self, burst: u64) -> Self {
        assert!(
            self.allows_burst(burst),
            "burst: this number is not allowed; give a number from 1 that the limit refills within 10 years"
        );
        Self {
            burst: Some(burst),
            ..self
        }
    }

    pub(crate) fn try_burst(self, burst: u64) -> Result<Self, ConfigError> {
        if self.allows_burst(burst) {
            Ok(Self {
                burst: Some(burst),
                ..self
            })
        } else {
            Err(ConfigError::out_of_range("burst", burst, ALLOWED_BURSTS))
        }
    }

    /// The limit per period.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The length of a period.
    pub const fn period(&self) -> Duration {
        Duration::from_nanos(self.period)
    }

    /// The capacity of a bucket: the burst, or the limit if no burst was set.
    pub const fn capacity(&self) -> u64 {
        match self.burst {
            Some(burst) => burst,
            None => self.limit,
        }
    }

    /// The burst, if one was given.
    pub(crate) const fn own_burst(&self) -> Option<u64> {
        self.burst
    }

    pub(crate) const fn period_ns(&self) -> u64 {
        self.period
    }

    /// The part of one of `machines` machines. If there are more machines than units, each gets one
    /// unit per longer period.
    pub(crate) fn share_of(&self, machines: u64) -> Result<Self, ConfigError> {
        let machines = machines.max(1);
        let share = match self.limit / machines {
            0 => {
                let longer = u128::from(self.period) * u128::from(machines);
                let ns = longer.div_ceil(u128::from(self.limit));
                let ns = u64::try_from(ns).unwrap_or(u64::MAX);
                Self::try_per(1, Duration::from_nanos(ns))?
            }
            limit => Self::try_per(limit, self.period())?,
        };
        if self.capacity() == self.limit {
            return Ok(share);
        }
        share.try_burst((self.capacity() / machines).max(1))
    }

    #[track_caller]
    const fn from_period_ns(limit: u64, period: u64) -> Self {
        assert!(
            limit != 0 && limit <= MAX_COUNT,
            "limit: this number is not allowed; give a number from 1 to 9007199254740991"
        );
        Self {
            limit,
            period,
            burst: None,
        }
    }

    const fn allows_burst(&self, burst: u64) -> bool {
        burst != 0
            && burst <= MAX_COUNT
            && burst as u128 * self.period as u128 / self.limit as u128 <= MAX_PERIOD_NS as u128
    }
}

/// The length of a unit of time in nanoseconds.
pub(crate) fn unit_ns(unit: &str) -> Option<u64> {
    let names = |names: &[&str]| names.contains(&unit);
    let found = UNITS.iter().find(|(spellings, _)| names(spellings));
    found.map(|(_, length)| *length)
}

/// A span as a multiple of the largest unit that divides it, which keeps the text short and exact.
pub(crate) fn in_largest_unit(ns: u64) -> (u64, &'static str) {
    let divides = |length: u64| ns > 0 && ns % length == 0;
    let found = UNITS.iter().find(|(_, length)| divides(*length));
    found.map_or((ns, "ns"), |(spellings, length)| {
        (ns / length, spellings[0])
    })
}

impl FromStr for Quota {
    type Err = ConfigError;

    /// Parses `LIMIT/PERIOD`, then optionally `; burst=N`. A period is a unit with an optional
    /// number before it. Units are `ns`, `us`, `ms`, `s`, `min`, `h`, `d`, `w` and their names,
    /// such as `second` or `seconds`, and `month`.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let expected = |expected: &str| ConfigError::syntax("quota", text, expected);
        let count = |digits: &str, field: &'static str| {
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(expected(&format!(
                    "a whole number for the {field}, found {digits:?}"
                )));
            }
            digits
                .parse::<u64>()
                .map_err(|_| ConfigError::out_of_range(field, digits, ALLOWED_COUNTS))
        };

        let (rate, burst) = match text.split_once(';') {
            Some((rate, burst)) => (rate, Some(burst)),
            None => (text, None),
        };
        let (limit, period) = rate
            .split_once('/')
            .ok_or_else(|| expected("LIMIT/PERIOD, such as 10/s or 100/min"))?;
        let limit = count(limit.trim(), "limit")?;

        let period = period.trim();
        let digits = period
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(period.len());
        let (times, unit) = period.split_at(digits);
        let times = if times.is_empty() {
            1
        } else {
            count(times, "period")?
        };
        let unit = unit.trim();
        let Some(unit) = unit_ns(unit) else {
            return Err(expected(
                "a unit of time after the slash: ns, us, ms, s, min, h, d, w or month",
            ));
        };
        let period = times
            .checked_mul(unit)
            .map(Duration::from_nanos)
            .ok_or_else(|| ConfigError::out_of_range("period", period, ALLOWED_PERIODS))?;
        let quota = Self::try_per(limit, period)?;

        match burst {
            None => Ok(quota),
            Some(burst) => {
                let burst = burst
                    .trim()
                    .strip_prefix("burst")
                    .and_then(|rest| rest.trim_start().strip_prefix('='))
                    .ok_or_else(|| expected("burst=N after the semicolon"))?;
                quota.try_burst(count(burst.trim(), "burst")?)
            }
        }
    }
}

/// A limit and its period.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::Quota;
///
/// assert!(Quota::try_from((10, Duration::from_secs(1))).is_ok());
/// let error = Quota::try_from((10, Duration::ZERO)).unwrap_err();
/// assert!(error.to_string().starts_with("period: 0ns is not allowed"));
/// ```
impl TryFrom<(u64, Duration)> for Quota {
    type Error = ConfigError;

    fn try_from((limit, period): (u64, Duration)) -> Result<Self, ConfigError> {
        Self::try_per(limit, period)
    }
}

/// A limit, its period, and the burst.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::Quota;
///
/// let day = Duration::from_secs(86_400);
/// assert!(Quota::try_from((1, day, 1_000)).is_ok());
/// assert!(Quota::try_from((1, day, 10_000)).is_err(), "27 years");
/// ```
impl TryFrom<(u64, Duration, u64)> for Quota {
    type Error = ConfigError;

    fn try_from((limit, period, burst): (u64, Duration, u64)) -> Result<Self, ConfigError> {
        Self::try_per(limit, period)?.try_burst(burst)
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (times, unit) = in_largest_unit(self.period);
        write!(f, "{}/", self.limit)?;
        if times != 1 {
            write!(f, "{times}")?;
        }
        f.write_str(unit)?;
        match self.burst {
            Some(burst) => write!(f, "; burst={burst}"),
            None => Ok(()),
        }
    }
}

/// Manual impl: the text form is shorter and exact.
impl fmt::Debug for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quota({self})")
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Quota {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Quota {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
