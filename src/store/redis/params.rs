//! Numbers that a script can represent, and the headers of stored values.

use std::fmt::Display;

use crate::algorithm::{self, Portable, Takes, state_from_bytes};
use crate::error::ConfigError;
use crate::varint;

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

/// Refuses a period or a setting that is no whole number of microseconds.
pub(super) fn checked_times<A: Portable>(algorithm: &A) -> Result<(), ConfigError> {
    checked_micros("period", algorithm.quota().period_ns())?;
    for (setting, value) in algorithm::settings(algorithm) {
        if setting.takes == Takes::Time {
            checked_micros(setting.name, value.unwrap_or_default())?;
        }
    }
    Ok(())
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

/// The state that consists of these numbers, in the order in which the algorithm lists them.
pub(super) fn state_of<A: Portable>(
    algorithm: &A,
    numbers: impl IntoIterator<Item = u64>,
) -> Option<A::State> {
    let mut bytes = Vec::new();
    for number in numbers {
        varint::write(&mut bytes, number.into());
    }
    state_from_bytes(algorithm, &bytes)
}

/// The numbers of a log of these moments and costs, oldest first. Costs of zero are left out.
pub(super) fn log_numbers<const N: usize>(entries: [(u64, u64); N]) -> Vec<u64> {
    let mut numbers = vec![0];
    let mut last = 0;
    for (at, cost) in entries.into_iter().filter(|(_, cost)| *cost > 0) {
        numbers[0] += 1;
        numbers.extend([at.saturating_sub(last), cost]);
        last = at;
    }
    numbers
}
