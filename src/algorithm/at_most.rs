//! Sizes a bucket so that it keeps a given promise.

use std::{fmt, marker::PhantomData, time::Duration};

use crate::error::{ConfigError, expect_valid};
use crate::quota::Quota;

/// Builds a bucket that admits at most n in any period.
///
/// Made by [`TokenBucket::at_most`](crate::TokenBucket::at_most) and
/// [`LeakyBucket::at_most`](crate::LeakyBucket::at_most).
#[must_use = "set the period with in_any"]
pub struct AtMost<A> {
    n: u64,
    burst: Option<u64>,
    marker: PhantomData<fn() -> A>,
}

impl<A> AtMost<A> {
    pub(super) const fn new(n: u64) -> Self {
        Self {
            n,
            burst: None,
            marker: PhantomData,
        }
    }

    /// The burst, out of n; the rest is the rate. The default is half of n.
    pub const fn burst(mut self, burst: u64) -> Self {
        self.burst = Some(burst);
        self
    }
}

impl<A: From<Quota>> AtMost<A> {
    /// A bucket that admits at most n in **any** interval of length `period`, both ends included.
    ///
    /// A bucket of burst B and rate L per W admits up to `B + T * L/W` in an interval of length T.
    /// Both have to fit in n: the burst is half of n, rounded up, or the value of
    /// [`burst`](Self::burst), and the rate is the rest of n per period.
    ///
    /// [`SlidingLog`](crate::SlidingLog) keeps the same promise and admits n in every period; the
    /// long-run rate of this bucket is only `n - B` per period. In return a key takes 16 bytes
    /// instead of n moments. If n per period are needed, use the log or a strict
    /// [`SlidingGrid`](crate::SlidingGrid).
    ///
    /// If the burst is all of n, as it is for n = 1, nothing is left for the rate. One token then
    /// comes back a nanosecond after each period.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Limiter, TokenBucket, algorithm::Algorithm};
    ///
    /// let minute = Duration::from_secs(60);
    /// let bucket = TokenBucket::at_most(100).in_any(minute);
    /// assert_eq!(bucket.quota().to_string(), "50/min; burst=50");
    /// let bucket = TokenBucket::at_most(100).burst(20).in_any(minute);
    /// assert_eq!(bucket.quota().to_string(), "80/min; burst=20");
    /// ```
    ///
    /// # Panics
    /// If [`try_in_any`](Self::try_in_any) returns an error.
    #[track_caller]
    pub fn in_any(self, period: Duration) -> A {
        expect_valid(self.try_in_any(period))
    }

    /// [`in_any`](Self::in_any) for values from a configuration.
    ///
    /// # Errors
    /// If n is zero, the burst zero or above n, or the period zero or longer than a [`Quota`]
    /// allows.
    pub fn try_in_any(self, period: Duration) -> Result<A, ConfigError> {
        if self.n == 0 {
            return Err(ConfigError::out_of_range("n", self.n, "a number from 1"));
        }
        let burst = self.burst.unwrap_or(self.n - self.n / 2);
        if burst == 0 || burst > self.n {
            return Err(ConfigError::out_of_range(
                "burst",
                burst,
                "a number from 1 to n",
            ));
        }
        let rate = self.n - burst;
        let quota = if rate == 0 {
            // One nanosecond more: an interval as long as the period includes both ends.
            Quota::try_per(1, period.saturating_add(Duration::from_nanos(1)))
                .and_then(|quota| quota.try_burst(burst))?
        } else {
            Quota::try_per(rate, period)?.try_burst(burst)?
        };
        Ok(A::from(quota))
    }
}

/// Manual impl: derive would require `A: Debug`.
impl<A> fmt::Debug for AtMost<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtMost")
            .field("n", &self.n)
            .field("burst", &self.burst)
            .finish()
    }
}
