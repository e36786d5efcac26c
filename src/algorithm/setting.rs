//! A setting of an algorithm: its name, the values that it takes and their range, described once.
//!
//! An algorithm lists its settings in [`Algorithm::settings_fields`](super::Algorithm::settings_fields).
//! That one list writes and reads bytes, checks the values, gives a text the names of its options, and sets
//! one of them by its name.

use std::time::Duration;

use crate::error::ConfigError;
use crate::quota::{MAX_PERIOD_NS, Quota};

/// A setting of an algorithm, as a text and an error call it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) takes: Takes,
    pub(super) range: Range,
    /// Whether it has no default.
    pub(crate) is_required: bool,
}

/// What a value is. All are kept as numbers: a time as nanoseconds, a flag as 1, a word as its place, a time
/// zone as a digest of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Takes {
    Count,
    Time,
    /// The first one is the default.
    OneOf(&'static [&'static str]),
    Zone,
}

/// The values that are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Range {
    Any,
    None,
    Number(u64, u64),
    /// Units that the rate works off in the time that arithmetic allows.
    Units,
    /// A time whose sums with others do not overflow.
    Span,
}

pub(super) static BURST: Setting = Setting::count("burst", Range::Any);
pub(super) static NO_BURST: Setting = Setting::count("burst", Range::None);
pub(crate) static QUEUE: Setting = Setting::count("queue", Range::Units);
pub(crate) static MAX_WAIT: Setting = Setting::time("max_wait", Range::Any);
pub(super) static OFFSET: Setting = Setting::time("offset", Range::Any);

impl Setting {
    pub(super) const fn new(name: &'static str, takes: Takes, range: Range) -> Self {
        Self {
            name,
            takes,
            range,
            is_required: false,
        }
    }

    pub(super) const fn count(name: &'static str, range: Range) -> Self {
        Self::new(name, Takes::Count, range)
    }

    pub(super) const fn time(name: &'static str, range: Range) -> Self {
        Self::new(name, Takes::Time, range)
    }

    pub(super) const fn one_of(name: &'static str, words: &'static [&'static str; 2]) -> Self {
        Self::new(name, Takes::OneOf(words), Range::Number(0, 1))
    }

    pub(super) const fn required(mut self) -> Self {
        self.is_required = true;
        self
    }

    /// Refuses `value`, with what is allowed.
    pub(crate) fn refuse(&self, value: u64, allowed: impl Into<String>) -> ConfigError {
        let value = match self.takes {
            Takes::Time => format!("{:?}", Duration::from_nanos(value)),
            Takes::OneOf(words) if value == 1 => words[1].to_owned(),
            _ => value.to_string(),
        };
        ConfigError::out_of_range(self.name, value, allowed.into())
    }

    /// Refuses a value out of range.
    pub(crate) fn check(&self, value: u64, quota: &Quota) -> Result<(), ConfigError> {
        let allowed = match self.range {
            Range::Any => return Ok(()),
            Range::Number(from, to) if (from..=to).contains(&value) => return Ok(()),
            Range::Units if quota.try_burst(value).is_ok() => return Ok(()),
            Range::Span if (1..=MAX_PERIOD_NS).contains(&value) => return Ok(()),
            Range::None => "a quota without burst: only buckets use it".to_owned(),
            Range::Number(from, to) => format!("a number from {from} to {to}"),
            Range::Units => "a number from 1 that the rate works off within 10 years".to_owned(),
            Range::Span => "a time from 1ns to 10 years".to_owned(),
        };
        Err(self.refuse(value, allowed))
    }
}
