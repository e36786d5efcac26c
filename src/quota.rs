//! How much is allowed: a number per period, and how much of it at once.

use std::{fmt, str::FromStr, time::Duration};

use crate::error::ConfigError;

/// `limit` per `period`, and for the algorithms that have one, the burst that may come at once.
///
/// `per_second(20)` means twenty a second. A quota is also a text: `"20/s"`, `"100/min"`,
/// `"5/10s"`, `"10/s; burst=50"`; what it prints reads back as itself.
///
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

/// Counts stay below 2^63, so that two of them add up in 64 bits.
const MAX_COUNT: u64 = i64::MAX as u64;
/// Periods, and the time to refill a whole burst, stay within 2^62 ns (146 years), so that the
/// sum of any time and any span fits 64 bits.
const MAX_PERIOD_NS: u64 = 1 << 62;

const ALLOWED_COUNTS: &str = "a number from 1 to 9223372036854775807";
const ALLOWED_PERIODS: &str = "a period from 1 ns to 4611686018427387904 ns (146 years)";
const ALLOWED_BURSTS: &str = "a number from 1 that the rate refills within 146 years";

const SECOND: u64 = 1_000_000_000;
const UNITS: [(&str, u64); 8] = [
    ("w", 7 * 86_400 * SECOND),
    ("d", 86_400 * SECOND),
    ("h", 3_600 * SECOND),
    ("min", 60 * SECOND),
    ("s", SECOND),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

impl Quota {
    /// `limit` a second.
    ///
    /// # Panics
    /// If `limit` is 0 or above 2^63 - 1; [`try_per`](Self::try_per) answers with an error instead.
    pub const fn per_second(limit: u64) -> Self {
        Self::of(limit, SECOND)
    }

    /// `limit` a minute.
    ///
    /// # Panics
    /// If `limit` is 0 or above 2^63 - 1; [`try_per`](Self::try_per) answers with an error instead.
    pub const fn per_minute(limit: u64) -> Self {
        Self::of(limit, 60 * SECOND)
    }

    /// `limit` an hour.
    ///
    /// # Panics
    /// If `limit` is 0 or above 2^63 - 1; [`try_per`](Self::try_per) answers with an error instead.
    pub const fn per_hour(limit: u64) -> Self {
        Self::of(limit, 3_600 * SECOND)
    }

    /// `limit` a day.
    ///
    /// # Panics
    /// If `limit` is 0 or above 2^63 - 1; [`try_per`](Self::try_per) answers with an error instead.
    pub const fn per_day(limit: u64) -> Self {
        Self::of(limit, 86_400 * SECOND)
    }

    /// `limit` in each `period`.
    ///
    /// # Panics
    /// If either is zero or out of range; [`try_per`](Self::try_per) answers with an error instead.
    #[track_caller]
    pub fn per(limit: u64, period: Duration) -> Self {
        Self::try_per(limit, period).unwrap_or_else(|error| panic!("{error}"))
    }

    /// `limit` in each `period`, for values that come from elsewhere.
    ///
    /// # Errors
    /// A zero or a value out of range, with what is allowed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::Quota;
    ///
    /// assert!(Quota::try_per(10, Duration::from_secs(1)).is_ok());
    /// let error = Quota::try_per(10, Duration::ZERO).unwrap_err();
    /// assert!(error.to_string().starts_with("period: 0ns is not allowed"));
    /// ```
    pub fn try_per(limit: u64, period: Duration) -> Result<Self, ConfigError> {
        if limit == 0 || limit > MAX_COUNT {
            return Err(ConfigError::out_of_range("limit", limit, ALLOWED_COUNTS));
        }
        match u64::try_from(period.as_nanos()) {
            Ok(period @ 1..=MAX_PERIOD_NS) => Ok(Self::of(limit, period)),
            _ => Err(ConfigError::out_of_range(
                "period",
                format!("{period:?}"),
                ALLOWED_PERIODS,
            )),
        }
    }

    /// The most that may come at once: the capacity of a bucket. Windows do not use it.
    ///
    /// # Panics
    /// If it is zero, or so large that refilling it takes more than 146 years;
    /// [`try_burst`](Self::try_burst) answers with an error instead.
    #[must_use]
    #[track_caller]
    pub const fn burst(self, burst: u64) -> Self {
        assert!(
            self.allows_burst(burst),
            "burst: 0, or more than is refilled in 146 years, is not allowed; give a number from 1 to that"
        );
        Self {
            burst: Some(burst),
            ..self
        }
    }

    /// The most that may come at once, for values that come from elsewhere.
    ///
    /// # Errors
    /// If it is zero, or so large that refilling it takes more than 146 years.
    ///
    /// ```
    /// use tower_throttle::Quota;
    ///
    /// assert!(Quota::per_day(1).try_burst(1_000).is_ok());
    /// assert!(Quota::per_day(1).try_burst(1_000_000).is_err(), "2,700 years");
    /// ```
    pub fn try_burst(self, burst: u64) -> Result<Self, ConfigError> {
        if self.allows_burst(burst) {
            Ok(self.burst(burst))
        } else {
            Err(ConfigError::out_of_range("burst", burst, ALLOWED_BURSTS))
        }
    }

    /// How many in each period.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The length of a period.
    pub const fn period(&self) -> Duration {
        Duration::from_nanos(self.period)
    }

    /// The most that may come at once: the burst, or the limit where none was given.
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

    const fn of(limit: u64, period: u64) -> Self {
        assert!(
            limit != 0 && limit <= MAX_COUNT,
            "limit: 0, or more than 9223372036854775807, is not allowed; give a number from 1 to that"
        );
        Self {
            limit,
            period,
            burst: None,
        }
    }

    const fn allows_burst(&self, burst: u64) -> bool {
        // 2^63 x 2^62 fits 128 bits.
        burst != 0
            && burst <= MAX_COUNT
            && burst as u128 * self.period as u128 / self.limit as u128 <= MAX_PERIOD_NS as u128
    }
}

impl FromStr for Quota {
    type Err = ConfigError;

    /// Reads `LIMIT/PERIOD`, then optionally `; burst=N`. A period is a unit (`ns`, `us`, `ms`,
    /// `s`, `min`, `h`, `d`, `w`, or `second`, `minute`, `hour`, `day`, `week`) with an optional
    /// number before it.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let expected = |expected: &str| ConfigError::Syntax {
            text: text.to_owned(),
            expected: expected.to_owned(),
        };
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
        let unit = match unit.trim() {
            "sec" | "second" => "s",
            "m" | "minute" => "min",
            "hour" => "h",
            "day" => "d",
            "week" => "w",
            other => other,
        };
        let Some((_, unit)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(expected(
                "a unit of time after the slash: ns, us, ms, s, min, h, d or w",
            ));
        };
        let period = times
            .checked_mul(*unit)
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

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The largest unit that divides the period keeps the text short and exact.
        let (unit, length) = UNITS
            .into_iter()
            .find(|(_, length)| self.period % length == 0)
            .unwrap_or(("ns", 1));
        write!(f, "{}/", self.limit)?;
        if self.period != length {
            write!(f, "{}", self.period / length)?;
        }
        f.write_str(unit)?;
        match self.burst {
            Some(burst) => write!(f, "; burst={burst}"),
            None => Ok(()),
        }
    }
}

/// The text, so that logs and the policies printed in them read well.
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
