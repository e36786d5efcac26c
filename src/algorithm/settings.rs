//! Checks of settings that several algorithms share.

use std::{fmt, time::Duration};

use crate::error::ConfigError;
use crate::quota::Quota;

const REFILLED: &str = "a number from 1 that the rate works off within 146 years";

/// Refuses a burst, which a window does not use.
pub(super) fn refuse_burst(quota: &Quota) -> Result<(), ConfigError> {
    match quota.own_burst() {
        None => Ok(()),
        Some(burst) => Err(ConfigError::out_of_range(
            "burst",
            burst,
            "a quota without burst: only buckets use it",
        )),
    }
}

/// Refuses a setting of the line of an algorithm that has no line.
pub(super) fn refuse_without_queue<T: fmt::Debug>(
    field: &'static str,
    value: Option<T>,
) -> Result<(), ConfigError> {
    match value {
        None => Ok(()),
        Some(value) => Err(ConfigError::out_of_range(
            field,
            format!("{value:?}"),
            "a `queue` too: without one no request waits",
        )),
    }
}

/// Refuses more units than the rate works off in the time that arithmetic allows.
pub(super) fn check_units(
    field: &'static str,
    quota: &Quota,
    units: Option<u64>,
) -> Result<(), ConfigError> {
    match units {
        Some(units) if quota.try_burst(units).is_err() => {
            Err(ConfigError::out_of_range(field, units, REFILLED))
        }
        _ => Ok(()),
    }
}

/// A wait that was set, for an error message.
pub(super) fn own_wait(max_wait: u64) -> Option<Duration> {
    (max_wait < u64::MAX).then(|| Duration::from_nanos(max_wait))
}
