//! The settings of a table.

use std::sync::Arc;

use super::Local;
use super::inner::{LocalInner, Parts};
use super::overflow::Overflow;
use crate::algorithm::Algorithm;
use crate::clock::Clock;
use crate::error::{ConfigError, expect_valid};

/// A larger table would not fit the address space.
const MAX_CAPACITY: usize = 1 << if usize::BITS < 64 { 25 } else { 36 };
const ALLOWED_CAPACITIES: &str = if usize::BITS < 64 {
    "a number of keys from 1 to 33554432"
} else {
    "a number of keys from 1 to 68719476736"
};

impl<A: Algorithm, C> From<LocalInner<A, C>> for Local<A, C> {
    fn from(inner: LocalInner<A, C>) -> Self {
        Self {
            shared: Arc::new(inner),
            own: None,
        }
    }
}

/// Settings. Call these methods before the first use and before the first clone.
///
/// A table has one capacity and one clock, and all clones share it. A method
/// that changed one of them for a clone, or for a table in use, would have to start a second table,
/// in which each key has its whole limit again. These methods therefore refuse to.
impl<A: Algorithm, C: Clock> Local<A, C> {
    /// Sets how many keys the table can hold.
    ///
    /// The table has at least a third more slots than that. [`Overflow`] describes what happens to further
    /// keys. Even a capacity that is too small enforces limits: all keys together never get more
    /// than one limit per slot.
    ///
    /// # Panics
    /// If `keys` is 0 or above 2^36 (on 32-bit systems 2^25), or if the table was used or cloned
    /// before.
    ///
    /// ```
    /// use tower_throttle::{Local, Quota, TokenBucket};
    ///
    /// let limiter = Local::new(TokenBucket::new(Quota::per_second(10))).capacity(1_000_000);
    /// assert!(limiter.stats().table_bytes < 32_000_000);
    /// # let _ = limiter.check(&1, 1);
    /// ```
    #[must_use]
    #[track_caller]
    pub fn capacity(self, keys: usize) -> Self {
        expect_valid(self.try_capacity(keys))
    }

    pub(crate) fn try_capacity(self, keys: usize) -> Result<Self, ConfigError> {
        if keys == 0 || keys > MAX_CAPACITY {
            return Err(ConfigError::out_of_range(
                "capacity",
                keys,
                ALLOWED_CAPACITIES,
            ));
        }
        let what = "another capacity for a table that was used or cloned";
        let (algorithm, (_, overflow), clock) = self.unused(what)?;
        Ok(LocalInner::new((algorithm, (keys, overflow), clock)).into())
    }

    /// Sets what a full table does with a new key.
    ///
    /// # Panics
    /// If the table was used or cloned before.
    #[must_use]
    #[track_caller]
    pub fn overflow(self, overflow: Overflow) -> Self {
        let unused = self.unused("another overflow policy for a table that was used or cloned");
        let (algorithm, (keys, _), clock) = expect_valid(unused);
        LocalInner::new((algorithm, (keys, overflow), clock)).into()
    }

    /// Uses another clock, such as [`ManualClock`](crate::ManualClock) in a test.
    ///
    /// # Panics
    /// If the table was used or cloned before.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Local, ManualClock, Quota, TokenBucket};
    ///
    /// let clock = ManualClock::new();
    /// let limiter = Local::new(TokenBucket::new(Quota::per_second(1))).with_clock(clock.clone());
    /// assert!(limiter.check(&7, 1).is_admitted());
    /// assert!(limiter.check(&7, 1).is_denied());
    /// clock.advance(Duration::from_secs(1));
    /// assert!(limiter.check(&7, 1).is_admitted());
    /// ```
    #[must_use]
    #[track_caller]
    pub fn with_clock<D: Clock>(self, clock: D) -> Local<A, D> {
        let unused = self.unused("another clock for a table that was used or cloned");
        let (algorithm, size, _) = expect_valid(unused);
        LocalInner::new((algorithm, size, clock)).into()
    }

    /// Allocates the table now and not at its first use, which takes 10 to 20 ms per million keys.
    pub(crate) fn allocate(&self) {
        self.shared.allocate();
    }

    /// What it was made of, if it has not been used and no clone shares it.
    pub(super) fn unused(self, what: &'static str) -> Result<Parts<A, C>, ConfigError> {
        let parts = Arc::into_inner(self.shared).and_then(LocalInner::into_parts);
        let instead = "set it before the first use and before the first clone";
        parts.ok_or_else(|| ConfigError::unsupported(what, instead))
    }
}
