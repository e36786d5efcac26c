//! Random policies of all sizes.

use std::time::Duration;

use super::random::Random;
use crate::algorithm::{
    FixedWindow, LeakyBucket, SlidingGrid, SlidingLog, SlidingWindow, TokenBucket,
};
use crate::quota::Quota;

/// From 1 per day to 1e9 per second, in whole microseconds.
pub(super) fn quota(random: &mut Random) -> Quota {
    let limit = match random.below(3) {
        0 => 1 + random.below(10),
        1 => 1 + random.below(1_000),
        _ => 1 + random.log_uniform(22),
    };
    let period = match random.below(5) {
        0 => 1_000_000,
        1 => 86_400_000_000,
        2 => 1 + random.log_uniform(32),
        3 => 1_000_000 * (1 + random.below(3_600)),
        _ => *random.pick(&[7, 100, 7_000_013, 333_333_333, 1_000_001]),
    };
    Quota::per(limit, Duration::from_micros(period))
}

pub(super) fn small_quota(random: &mut Random) -> Quota {
    Quota::per(
        1 + random.below(12),
        Duration::from_micros(1 + random.log_uniform(24)),
    )
}

pub(super) fn burst(random: &mut Random, quota: Quota) -> Quota {
    match random.below(3) {
        0 => quota,
        _ => quota.burst(1 + random.below(3 * quota.limit())),
    }
}

/// An offset for windows of `length` nanoseconds. Offsets that differ by whole windows are the same
/// grid to a script, but not to the algorithm. Among short windows that would be frequent, so their
/// offsets are shorter than a window.
pub(super) fn offset(random: &mut Random, length: u64) -> Duration {
    let offset = Duration::from_micros(random.log_uniform(40));
    match Duration::from_nanos(length) {
        short if short < Duration::from_millis(100) => {
            Duration::from_nanos(u64::try_from(offset.as_nanos()).unwrap() % length)
        }
        _ => offset,
    }
}

pub(super) fn token_bucket(random: &mut Random) -> TokenBucket {
    let quota = quota(random);
    TokenBucket::new(burst(random, quota))
}

pub(super) fn leaky_bucket(random: &mut Random) -> LeakyBucket {
    let quota = quota(random);
    LeakyBucket::new(burst(random, quota))
}

pub(super) fn fixed_window(random: &mut Random) -> FixedWindow {
    let quota = quota(random);
    FixedWindow::new(quota).offset(offset(random, quota.period_ns()))
}

pub(super) fn sliding_window(random: &mut Random) -> SlidingWindow {
    let quota = quota(random);
    SlidingWindow::new(quota).offset(offset(random, quota.period_ns()))
}

pub(super) fn sliding_grid(random: &mut Random) -> SlidingGrid {
    // Of cells that are whole microseconds.
    let cells = 1 + random.below(60);
    let quota = quota(random);
    let period = u64::try_from(quota.period().as_micros()).unwrap();
    let period = period.div_ceil(cells) * cells;
    let quota = Quota::per(quota.limit(), Duration::from_micros(period));
    let grid = SlidingGrid::new(quota).cells(usize::try_from(cells).unwrap());
    let length = quota.period_ns() / cells;
    let grid = grid.offset(offset(random, length));
    match random.below(2) {
        0 => grid,
        _ => grid.strict(),
    }
}

pub(super) fn sliding_log(random: &mut Random) -> SlidingLog {
    let quota = quota(random);
    SlidingLog::new(Quota::per(quota.limit().min(1_000), quota.period()))
}

#[cfg(feature = "governor")]
pub(super) fn gcra(random: &mut Random) -> crate::algorithm::Gcra {
    let quota = quota(random);
    crate::algorithm::Gcra::new(burst(random, quota))
}
