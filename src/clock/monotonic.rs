//! The default clock.

use std::time::Duration;

use super::runtime;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
use super::system::system_nanos as now;
use super::system::unix_time;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use super::tsc::now;
use super::{Clock, Tick};

/// The system's monotonic clock. The whole process shares one zero.
///
/// # Calendar
/// It counts from the Unix epoch, by the wall clock at the time of the first reading. So aligned windows of any
/// length begin at a multiple of it after the Unix epoch, in every process. A week begins on Thursday at 00:00 UTC, because the Unix epoch was a Thursday; an offset of four days makes
/// it begin on Monday. Later steps of the wall clock have no effect.
/// [`CalendarWindow`](crate::CalendarWindow) knows months and time zones.
///
/// # Reading
/// On Linux and x86-64 it reads the processor's counter if the kernel itself does so, which is faster
/// than `Instant::now`. It never runs backwards: a reading is never less than any reading that
/// happened before it in the same thread. It stays within 100 µs of `Instant`, and is corrected by
/// running slower or faster, never by a step back. On other systems it reads `Instant`.
///
/// With the feature `test-util`, which is for the tests of a program, it is tokio's clock and follows
/// paused time.
///
/// # Waiting
/// Sleeping needs no runtime: a thread of this crate wakes the sleepers. It starts with the first one. Requests in a
/// queue that are polled in a runtime of tokio are woken by its timers, if they are enabled. With the feature `test-util` a
/// sleeper in a runtime of tokio uses its timers, so that paused time works.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    #[inline]
    fn now(&self) -> Tick {
        // Not `from_nanos`: it is below `Tick::MAX` for 230 years, and the comparison would be a tenth
        // of a decision.
        runtime::now().unwrap_or_else(|| Tick(now()))
    }

    #[inline]
    fn at(&self, moment: Tick) -> Tick {
        moment
    }

    /// tokio's time if tests can pause it.
    fn unix_time(&self) -> Duration {
        let paused = runtime::now().map(|now| Duration::from_nanos(now.as_nanos()));
        paused.unwrap_or_else(unix_time)
    }
}
