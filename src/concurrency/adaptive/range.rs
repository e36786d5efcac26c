//! A limit within its bounds.

use super::math::ONE;
use crate::error::{ConfigError, expect_valid};

/// A limit in fixed point, and the least and the greatest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InRange {
    min: u32,
    max: u32,
    exact: u64,
}

/// The setters of an algorithm with a `limit` in a range.
macro_rules! range_setters {
    () => {
        /// Keeps the limit from `min` to `max`.
        ///
        /// # Panics
        /// If `min` is 0 or greater than `max`.
        #[track_caller]
        pub fn between(mut self, min: u32, max: u32) -> Self {
            self.limit = self.limit.with_bounds(min, max);
            self
        }

        /// The limit before the first window.
        ///
        /// # Panics
        /// If it is out of the [range](Self::between).
        #[track_caller]
        pub fn start_at(mut self, start: u32) -> Self {
            self.limit = self.limit.with_start(start);
            self
        }
    };
}

pub(super) use range_setters;

impl InRange {
    /// From 1 to 200, and 20 at first.
    pub(super) const fn new() -> Self {
        Self {
            min: 1,
            max: 200,
            exact: 20 * ONE,
        }
    }

    /// Sets the bounds. The limit is moved between them.
    #[track_caller]
    pub(super) fn with_bounds(self, min: u32, max: u32) -> Self {
        let allowed = "two numbers from 1 to 4294967295, the lower one first";
        let error = || ConfigError::out_of_range("between", format!("{min} to {max}"), allowed);
        expect_valid((1..=max).contains(&min).then_some(()).ok_or_else(error));
        let mut moved = Self { min, max, ..self };
        moved.set(self.exact);
        moved
    }

    /// Sets the first limit.
    #[track_caller]
    pub(super) fn with_start(self, start: u32) -> Self {
        let Self { min, max, .. } = self;
        let allowed = format!("a number from {min} to {max}");
        let error = || ConfigError::out_of_range("start_at", start, allowed);
        expect_valid((min..=max).contains(&start).then_some(()).ok_or_else(error));
        let exact = u64::from(start) * ONE;
        Self { exact, ..self }
    }

    /// The limit in fixed point.
    pub(super) const fn exact(self) -> u64 {
        self.exact
    }

    /// The limit, rounded down.
    pub(super) fn whole(self) -> u32 {
        u32::try_from(self.exact / ONE).unwrap_or(self.max)
    }

    /// Whether it is the least one.
    pub(super) fn is_least(self) -> bool {
        self.whole() <= self.min
    }

    /// Changes the limit, and keeps it between the bounds.
    pub(super) fn set(&mut self, exact: u64) {
        self.exact = exact.clamp(u64::from(self.min) * ONE, u64::from(self.max) * ONE);
    }
}
