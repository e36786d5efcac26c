//! A cheap clock that lags by up to one interval.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
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
/// Clones show the same time. The thread ends when the last clone is dropped.
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
pub struct CoarseClock {
    tick: Arc<Shared>,
    /// Dropped with the last clone.
    _thread: Arc<TickerThread>,
}

#[derive(Debug)]
struct Shared {
    now: AtomicU64,
    over: AtomicBool,
}

#[derive(Debug)]
struct TickerThread {
    tick: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl CoarseClock {
    /// Starts a thread that updates the clock every `interval`.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(interval: Duration) -> std::io::Result<Self> {
        let tick = Arc::new(Shared {
            now: AtomicU64::new(MonotonicClock.now().as_nanos()),
            over: AtomicBool::new(false),
        });
        let shared = Arc::clone(&tick);
        let thread = thread::Builder::new()
            .name("tower-throttle-tick".to_owned())
            .spawn(move || {
                while !shared.over.load(Ordering::Acquire) {
                    thread::park_timeout(interval);
                    let now = MonotonicClock.now().as_nanos();
                    shared.now.fetch_max(now, Ordering::Release);
                }
            })?;
        Ok(Self {
            _thread: Arc::new(TickerThread {
                tick: Arc::clone(&tick),
                thread,
            }),
            tick,
        })
    }
}

impl Clock for CoarseClock {
    #[inline]
    fn now(&self) -> Tick {
        Tick::from_nanos(self.tick.now.load(Ordering::Acquire))
    }
}

impl Drop for TickerThread {
    fn drop(&mut self) {
        self.tick.over.store(true, Ordering::Release);
        self.thread.thread().unpark();
    }
}
