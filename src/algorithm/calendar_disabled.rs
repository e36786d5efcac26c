//! Without the feature `calendar` there is no value of [`Calendar`].

use crate::error::ConfigError;
use crate::quota::Quota;

const NO_CALENDAR: ConfigError = ConfigError::Unsupported {
    what: "a window of the calendar",
    instead: "enable the feature `calendar`",
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Calendar {}

impl Calendar {
    pub(super) const fn try_new(_: &Quota, _: &str) -> Result<Self, ConfigError> {
        Err(NO_CALENDAR)
    }

    pub(super) const fn zone(&self) -> u64 {
        match *self {}
    }

    pub(super) const fn window(&self, _: u64, _: u64) -> Option<(u64, u64)> {
        match *self {}
    }
}

pub(crate) const fn zone_number(_: &str) -> Result<u64, ConfigError> {
    Err(NO_CALENDAR)
}

pub(crate) fn zone_name(number: u64) -> String {
    number.to_string()
}
