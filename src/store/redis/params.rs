//! Numbers that a script can represent, and the headers of stored values.

use std::fmt::Display;

use crate::error::ConfigError;

/// Spans, counts and parts stay below this, so that a script can add two of them exactly.
pub(super) const MAX_EXACT: u64 = 1 << 52;

pub(super) const BIGNUM_LUA: &str = include_str!("lua/bignum.lua");

pub(super) fn too_large(field: &'static str, value: impl Display) -> ConfigError {
    ConfigError::out_of_range(
        field,
        value,
        "a number that a Redis script can represent: up to 2^52 units, microseconds, or billionths \
         of a microsecond",
    )
}

/// A span in whole microseconds, which windows in Redis consist of.
pub(super) fn checked_micros(field: &'static str, ns: u64) -> Result<u64, ConfigError> {
    if ns % 1_000 != 0 {
        return Err(ConfigError::out_of_range(
            field,
            format!("{ns} ns"),
            "whole microseconds, which is what Redis counts in",
        ));
    }
    let us = ns / 1_000;
    if us > MAX_EXACT {
        return Err(too_large(field, format!("{us} us")));
    }
    Ok(us)
}

pub(super) fn checked_count(field: &'static str, count: u64) -> Result<u64, ConfigError> {
    if count > MAX_EXACT {
        return Err(too_large(field, count));
    }
    Ok(count)
}

/// The start of a value: the letter of its algorithm and the parameters it was written with.
pub(super) fn value_header(tag: char, params: &[u64]) -> String {
    let params: Vec<_> = params.iter().map(u64::to_string).collect();
    format!("~{tag}{};", params.join("."))
}
