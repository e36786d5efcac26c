//! Without the feature `calendar` there is no value of [`Calendar`].

use crate::error::ConfigError;
use crate::quota::Quota;

fn no_calendar() -> ConfigError {
    ConfigError::unsupported("a window of the calendar", "enable the feature `calendar`")
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Calendar {}

impl Calendar {
    pub(super) fn try_new(_: &Quota, _: &str) -> Result<Self, ConfigError> {
        Err(no_calendar())
    }

    pub(super) const fn zone(&self) -> u64 {
        match *self {}
    }

    pub(super) const fn window(&self, _: u64, _: u64) -> Option<(u64, u64)> {
        match *self {}
    }
}

pub(crate) fn zone_number(_: &str) -> Result<u64, ConfigError> {
    Err(no_calendar())
}

pub(crate) fn zone_name(number: u64) -> String {
    number.to_string()
}
