//! Clocks. No other module reads the time.

#[cfg_attr(
    all(test, tower_throttle_loom),
    expect(dead_code, reason = "the models of queues have an alarm of their own")
)]
mod alarm;
mod manual;
mod monotonic;
#[cfg_attr(not(feature = "tokio"), path = "no_runtime.rs")]
mod runtime;
mod sleep;
mod sleepers;
mod system;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod tsc;

#[cfg(not(all(test, tower_throttle_loom)))]
pub(crate) use self::alarm::Alarm;
pub use self::manual::ManualClock;
pub use self::monotonic::MonotonicClock;
pub use self::sleep::Sleep;
#[cfg(feature = "cas")]
pub(crate) use self::system::unix_now;
pub(crate) use self::system::unix_time;

use std::{fmt, future::Future, time::Duration};

/// A moment, in nanoseconds on the clock that returned it.
///
/// The last moment is 2^63 - 1 ns (292 years). Later ones saturate, so the sum of a moment and a
/// span never overflows.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::clock::Tick;
///
/// let start = Tick::from_nanos(1_000);
/// let later = start.plus(Duration::from_micros(1));
/// assert_eq!(later.as_nanos(), 2_000);
/// assert_eq!(later.since(start), Duration::from_micros(1));
/// assert_eq!(start.since(later), Duration::ZERO);
/// assert_eq!(Tick::from_nanos(u64::MAX), Tick::MAX);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(u64);

impl Tick {
    /// The clock's zero.
    pub const ZERO: Self = Self(0);
    /// The last moment.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// The moment `ns` nanoseconds after the clock's zero.
    #[inline]
    pub const fn from_nanos(ns: u64) -> Self {
        if ns > Self::MAX.0 {
            Self::MAX
        } else {
            Self(ns)
        }
    }

    /// Nanoseconds since the clock's zero.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The moment `span` later.
    #[inline]
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self::from_nanos(self.0.saturating_add(nanos(span)))
    }

    /// The moment `span` earlier.
    pub(crate) fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(span)))
    }

    /// The time from `earlier` to this moment; zero if `earlier` is the later one.
    #[inline]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A duration in whole nanoseconds; saturates at 584 years.
#[inline]
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// A source of time for a limiter.
///
/// A clock never runs backwards within a thread: a reading is never earlier than a previous one.
/// An implementation of your own counts nanoseconds from any zero:
///
/// ```
/// use std::time::Instant;
/// use tower_throttle::clock::{Clock, Tick};
///
/// #[derive(Debug)]
/// struct SinceStart(Instant);
///
/// impl Clock for SinceStart {
///     fn now(&self) -> Tick {
///         Tick::ZERO.plus(self.0.elapsed())
///     }
/// }
/// ```
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The present moment.
    ///
    /// It may be less than a reading that another thread has just passed on, by some microseconds: an
    /// algorithm accepts a moment that is earlier than its state.
    fn now(&self) -> Tick;

    /// What this clock showed at a moment of the [`MonotonicClock`], by which the requests in lines wait.
    ///
    /// ```
    /// use tower_throttle::ManualClock;
    /// use tower_throttle::clock::{Clock, MonotonicClock};
    ///
    /// let moment = MonotonicClock.now();
    /// assert_eq!(MonotonicClock.at(moment), moment);
    /// assert!(ManualClock::new().at(moment) <= ManualClock::new().now());
    /// ```
    fn at(&self, moment: Tick) -> Tick {
        self.now().minus(MonotonicClock.now().since(moment))
    }

    /// The time since 1970, by which a limit that is loaded sees how long ago it was saved; no decision uses it.
    /// By default the machine's wall clock. A [`ManualClock`] shows its own moment.
    fn unix_time(&self) -> Duration {
        unix_time()
    }
}

/// A clock that can wake futures at a given moment.
pub trait Timer: Clock {
    /// Completes at the deadline.
    type Sleep: Future<Output = ()> + Send;

    /// Completes when `now()` has reached `deadline`, or a little later.
    fn sleep_until(&self, deadline: Tick) -> Self::Sleep;
}
