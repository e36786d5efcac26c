//! What an algorithm promises of the costs that it admits.

use std::collections::HashMap;

/// What an algorithm promises of the costs that it admits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Promise {
    /// The capacity, and nanoseconds per unit.
    Bucket(u64, u64),
    /// The limit, and the length of the windows.
    Window(u64, u64),
    /// The limit in each interval of this length.
    Interval(u64, u64),
    /// Twice the limit in each interval of this length, because older costs count less and less.
    Weighted(u64, u64),
    /// None that is checked.
    None,
}

impl Promise {
    /// By how many units the costs, which are in order, exceed the promise.
    pub(crate) fn excess(self, costs: &[(u64, u64)]) -> u64 {
        match self {
            Self::Bucket(capacity, unit) => {
                let (mut level, mut last, mut peak) = (0_u64, 0, 0);
                for (at, cost) in costs {
                    level = level.saturating_sub(at - last) + cost * unit;
                    (last, peak) = (*at, peak.max(level));
                }
                peak.saturating_sub(capacity * unit).div_ceil(unit)
            }
            Self::Window(limit, length) => {
                let mut windows = HashMap::new();
                for (at, cost) in costs {
                    *windows.entry(at / length).or_insert(0) += cost;
                }
                let most: u64 = windows.into_values().max().unwrap_or(0);
                most.saturating_sub(limit)
            }
            Self::Interval(limit, length) => {
                let (mut first, mut sum, mut most) = (0, 0, 0);
                for (at, cost) in costs {
                    sum += cost;
                    while costs[first].0 + length <= *at {
                        sum -= costs[first].1;
                        first += 1;
                    }
                    most = sum.max(most);
                }
                most.saturating_sub(limit)
            }
            Self::Weighted(limit, length) => {
                let excess = Self::Interval(2 * limit, length).excess(costs);
                excess.div_ceil(2)
            }
            Self::None => 0,
        }
    }

    /// What it promises if clocks differ by `error`: the same, but for what is refilled in that time.
    pub(crate) fn with_clock_error(self, error: u64) -> Self {
        match self {
            Self::Bucket(capacity, unit) => Self::Bucket(capacity + error.div_ceil(unit), unit),
            // It contains parts of two windows.
            Self::Window(limit, length) if error > 0 && length < u64::MAX => {
                Self::Interval(2 * limit, length).with_clock_error(error)
            }
            Self::Interval(_, length) | Self::Weighted(_, length) if length <= error => Self::None,
            Self::Interval(limit, length) => Self::Interval(limit, length - error),
            Self::Weighted(limit, length) => Self::Weighted(limit, length - error),
            Self::Window(..) | Self::None => self,
        }
    }

    /// What two configurations of one algorithm promise together.
    pub(crate) fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Bucket(one, unit), Self::Bucket(other, second)) => {
                Self::Bucket(one + other, unit * second / (unit + second))
            }
            (Self::Window(one, length), Self::Window(other, _)) => {
                Self::Window(one + other, length)
            }
            (Self::Interval(one, length), Self::Interval(other, _)) => {
                Self::Interval(one + other, length)
            }
            (Self::Weighted(one, length), Self::Weighted(other, _)) => {
                Self::Weighted(one + other, length)
            }
            _ => Self::None,
        }
    }
}
