//! A clock that is read for next to nothing, and late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::{Clock, MonotonicClock, Tick};

/// The monotonic clock as it was at the last tick of a thread of its own.
///
/// Reading it is one load from memory. What it costs is truth: it is late by up to one interval,
/// and by as long as the system keeps its thread from running. So a limit comes back late by as
/// much, a `retry_after` counts from a moment that has passed by as much, and two requests the
/// clock holds to be T apart may really be closer: what a limiter promises of any time T it keeps
/// of T and the error together. The time between two ticks never admits anything by itself.
///
/// Clones show the same time; the thread ends with the last of them.
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
    /// Starts a thread that moves the clock on every `interval`.
    ///
    /// # Errors
    /// If the system gives no thread.
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
