//! A cheap clock that lags by up to one interval.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::{Clock, MonotonicClock, Tick};

/// The monotonic clock, cached by a background thread.
///
/// Reading it is one load from memory. It lags behind by up to one interval, or longer if the
/// system does not schedule the thread. This error has three effects:
/// - A limit recovers late by up to the error.
/// - A `retry_after` counts from a moment that is past by up to the error.
/// - Two requests that are T apart on this clock may be closer in reality. A limiter's promise for
///   an interval of length T holds for T plus the error.
///
/// Nothing is refilled between two ticks.
///
/// Clones show the same time. The thread ends within an interval after the last clone was dropped.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{Local, Quota, TokenBucket, clock::CoarseClock};
///
/// let clock = CoarseClock::start(Duration::from_millis(1))?;
/// let limiter = Local::new(TokenBucket::new(Quota::per_second(10))).with_clock(clock);
/// assert!(limiter.check("alice").is_admitted());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CoarseClock(Arc<AtomicU64>);

impl CoarseClock {
    /// Starts a thread that updates the clock every `interval`.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(interval: Duration) -> std::io::Result<Self> {
        let clock = Arc::new(AtomicU64::new(MonotonicClock.now().as_nanos()));
        let shown = Arc::downgrade(&clock);
        let thread = thread::Builder::new().name("tower-throttle-tick".to_owned());
        thread.spawn(move || {
            while let Some(clock) = shown.upgrade() {
                clock.fetch_max(MonotonicClock.now().as_nanos(), Ordering::Release);
                drop(clock);
                thread::park_timeout(interval);
            }
        })?;
        Ok(Self(clock))
    }
}

impl Clock for CoarseClock {
    #[inline]
    fn now(&self) -> Tick {
        Tick::from_nanos(self.0.load(Ordering::Acquire))
    }
}
