//! The range of a limit.

use super::math::ONE;
use crate::error::{ConfigError, expect_valid};

/// The least and the greatest limit, and the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    min: u32,
    max: u32,
    start: u32,
}

/// The setters of an algorithm with a `range`.
macro_rules! range_setters {
    () => {
        /// Keeps the limit from `min` to `max`.
        ///
        /// # Panics
        /// If `min` is 0 or greater than `max`.
        #[track_caller]
        pub fn between(mut self, min: u32, max: u32) -> Self {
            self.range = self.range.with_bounds(min, max);
            self
        }

        /// The limit before the first window.
        ///
        /// # Panics
        /// If it is out of the [range](Self::between).
        #[track_caller]
        pub fn start_at(mut self, start: u32) -> Self {
            self.range = self.range.with_start(start);
            self
        }
    };
}

pub(super) use range_setters;

impl Range {
    pub(super) const fn new(start: u32) -> Self {
        Self {
            min: 1,
            max: 200,
            start,
        }
    }

    /// Sets the bounds. The first limit is moved between them.
    #[track_caller]
    pub(super) fn with_bounds(self, min: u32, max: u32) -> Self {
        if min == 0 || min > max {
            let allowed = "two numbers from 1 to 4294967295, the lower one first";
            let value = format!("{min} to {max}");
            expect_valid(Err::<(), _>(ConfigError::out_of_range(
                "between", value, allowed,
            )));
        }
        let start = self.start.clamp(min, max);
        Self { min, max, start }
    }

    /// Sets the first limit.
    #[track_caller]
    pub(super) fn with_start(self, start: u32) -> Self {
        let Self { min, max, .. } = self;
        if start < min || start > max {
            let allowed = format!("a number from {min} to {max}");
            expect_valid(Err::<(), _>(ConfigError::out_of_range(
                "start_at", start, allowed,
            )));
        }
        Self { start, ..self }
    }

    /// The first limit, in fixed point.
    pub(super) fn start(self) -> u64 {
        u64::from(self.start) * ONE
    }

    /// The greatest limit.
    pub(super) const fn greatest(self) -> u64 {
        self.max as u64
    }

    /// Moves a whole limit between the bounds.
    pub(super) fn clamp_whole(self, limit: u64) -> u64 {
        limit.clamp(self.min.into(), self.max.into())
    }

    /// Whether a limit is the least one.
    pub(super) fn is_least(self, limit: u64) -> bool {
        limit / ONE <= u64::from(self.min)
    }

    /// Moves a limit in fixed point between the bounds.
    pub(super) fn clamp(self, limit: u64) -> u64 {
        limit.clamp(u64::from(self.min) * ONE, u64::from(self.max) * ONE)
    }
}
