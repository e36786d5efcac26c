//! Builds an algorithm from its name and options.

use tower_throttle::{
    ConfigError, FixedWindow, LeakyBucket, Lockout, Quota, SlidingGrid, SlidingLog, SlidingWindow,
    TokenBucket, WarmUp,
    algorithm::{Algorithm, AnyAlgorithm, IntoAlgorithm},
};

use crate::fields::{Fields, required};

const NAMES: [&str; 10] = [
    "fixed_window",
    "sliding_log",
    "sliding_window",
    "sliding_grid",
    "token_bucket",
    "leaky_bucket",
    "warm_up",
    "lockout",
    "gcra",
    "all",
];

/// Refuses an unknown name.
pub(crate) fn known(name: &str) -> Result<(), String> {
    if NAMES.contains(&name) {
        return Ok(());
    }
    let names = NAMES.join(", ");
    Err(format!("algorithm: expected {names}; found {name:?}"))
}

/// Builds the algorithm `name`; takes its options from `fields`.
pub(crate) fn build(name: &str, quota: Quota, fields: &mut Fields) -> Result<AnyAlgorithm, String> {
    match name {
        "fixed_window" => fixed_window(quota, fields),
        "sliding_log" => Ok(AnyAlgorithm::new(SlidingLog::new(quota))),
        "sliding_window" => sliding_window(quota, fields),
        "sliding_grid" => sliding_grid(quota, fields),
        "token_bucket" => token_bucket(quota, fields),
        "leaky_bucket" => Ok(AnyAlgorithm::new(LeakyBucket::new(quota))),
        "warm_up" => warm_up(quota, fields),
        "lockout" => lockout(quota, fields),
        _ => built(gcra(quota, fields.unit)),
    }
}

fn fixed_window(quota: Quota, fields: &mut Fields) -> Result<AnyAlgorithm, String> {
    let mut window = FixedWindow::new(quota);
    let anchored = fields.flag("anchored")?.unwrap_or_default();
    if let Some(offset) = fields.span("offset_ns")? {
        if anchored {
            return Err("offset_ns: an anchored window begins at a request, not there".into());
        }
        window = window.offset(offset);
    }
    if anchored {
        window = window.anchored();
    }
    Ok(AnyAlgorithm::new(window))
}

fn sliding_window(quota: Quota, fields: &mut Fields) -> Result<AnyAlgorithm, String> {
    let offset = fields.span("offset_ns")?.unwrap_or_default();
    Ok(AnyAlgorithm::new(SlidingWindow::new(quota).offset(offset)))
}

fn sliding_grid(quota: Quota, fields: &mut Fields) -> Result<AnyAlgorithm, String> {
    let offset = fields.span("offset_ns")?.unwrap_or_default();
    let mut grid = SlidingGrid::new(quota).offset(offset);
    if fields.flag("strict")?.unwrap_or_default() {
        grid = grid.strict();
    }
    if let Some(cells) = fields.number("cells")? {
        let cells = usize::try_from(cells).unwrap_or(usize::MAX);
        if !(1..=60).contains(&cells) {
            return Err(format!(
                "cells: {cells} is not allowed; give a number from 1 to 60"
            ));
        }
        grid = grid.cells(cells);
    }
    Ok(AnyAlgorithm::new(grid))
}

fn token_bucket(quota: Quota, fields: &mut Fields) -> Result<AnyAlgorithm, String> {
    let mut bucket = TokenBucket::new(quota);
    if let Some(tokens) = fields.number("initial")? {
        bucket = bucket.initial(tokens);
    }
    Ok(AnyAlgorithm::new(bucket))
}

fn warm_up(quota: Quota, fields: &mut Fields) -> Result<AnyAlgorithm, String> {
    let warm_up = required("warm_up_ns", fields.span("warm_up_ns")?)?;
    let factor = fields.number("cold_factor")?.unwrap_or(3);
    // As text the numbers are checked.
    let text = format!(
        "warm_up {quota}; warm_up={}ns; cold_factor={factor}",
        warm_up.as_nanos()
    );
    text.parse::<AnyAlgorithm>()
        .map_err(|error| error.to_string())?;
    let line = WarmUp::new(quota, warm_up).cold_factor(factor);
    Ok(AnyAlgorithm::new(line))
}

fn lockout(quota: Quota, fields: &mut Fields) -> Result<AnyAlgorithm, String> {
    let mut lockout = Lockout::new(quota);
    if let Some(block) = fields.span("block_ns")? {
        lockout = lockout.block(block);
    }
    if let Some(max_block) = fields.span("max_block_ns")? {
        lockout = lockout.max_block(max_block);
    }
    if let Some(forget) = fields.span("forget_ns")? {
        lockout = lockout.forget(forget);
    }
    match fields.text("on_success")?.as_deref() {
        None | Some("keep") => {}
        Some("clear") => lockout = lockout.clear_on_success(),
        Some(other) => {
            return Err(format!(
                "on_success: expected keep or clear, found {other:?}"
            ));
        }
    }
    built(lockout.validate().map(|()| lockout))
}

#[cfg(feature = "governor")]
fn gcra(quota: Quota, unit: u32) -> Result<tower_throttle::Gcra, ConfigError> {
    let quota = gcra_quota(quota, unit)?;
    if quota.capacity() > u32::MAX.into() {
        return format!("gcra {quota}")
            .parse()
            .map(|_: AnyAlgorithm| unreachable!("it is refused"));
    }
    Ok(tower_throttle::Gcra::new(quota))
}

/// The quota by which governor decides. It truncates the interval to whole nanoseconds; here, to those
/// of the trace, each of which is `unit` nanoseconds.
#[cfg(feature = "governor")]
pub(crate) fn gcra_quota(quota: Quota, unit: u32) -> Result<Quota, ConfigError> {
    if unit == 1 {
        return Ok(quota);
    }
    let units = quota.period().as_nanos() / u128::from(unit) / u128::from(quota.limit());
    let interval = std::time::Duration::from_nanos(u64::try_from(units).unwrap_or(u64::MAX).max(1));
    Quota::try_from((1, interval.saturating_mul(unit), quota.capacity()))
}

/// The same decisions, but the interval is not truncated to whole nanoseconds.
#[cfg(not(feature = "governor"))]
#[expect(clippy::unnecessary_wraps, reason = "governor refuses some quotas")]
fn gcra(quota: Quota, _unit: u32) -> Result<TokenBucket, ConfigError> {
    Ok(TokenBucket::new(quota))
}

#[cfg(not(feature = "governor"))]
#[expect(clippy::unnecessary_wraps, reason = "governor refuses some quotas")]
pub(crate) fn gcra_quota(quota: Quota, _unit: u32) -> Result<Quota, ConfigError> {
    Ok(quota)
}

fn built(algorithm: Result<impl IntoAlgorithm, ConfigError>) -> Result<AnyAlgorithm, String> {
    algorithm
        .map(AnyAlgorithm::new)
        .map_err(|error| error.to_string())
}
