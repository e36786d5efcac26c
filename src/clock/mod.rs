//! Time, and the only reader of it.

mod coarse;
#[cfg(feature = "tokio")]
mod paused;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod tsc;

pub use self::coarse::CoarseClock;

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, Waker},
    time::{Duration, Instant, SystemTime},
};

use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// A moment: nanoseconds on the clock that gave it out.
///
/// The last moment is 2^63 - 1 ns (292 years); later ones are taken for it, so that sums of a
/// moment and a span never overflow.
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

    /// The time from `earlier` to this moment; zero if `earlier` is the later one.
    #[inline]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A duration in whole nanoseconds; the longest ones are cut at 584 years.
#[inline]
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Tells the time to a limiter.
///
/// A clock never runs backwards: it answers the newest moment it has given out, or a later one.
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
    fn now(&self) -> Tick;
}

/// A clock on which something can be waited for.
pub trait Timer: Clock {
    /// Ends at the moment that was asked for.
    type Sleep: Future<Output = ()> + Send;

    /// Ends when `now()` has reached `deadline`, or a little later.
    fn sleep_until(&self, deadline: Tick) -> Self::Sleep;
}

/// The system's monotonic clock, one zero for the whole process.
///
/// The zero lies a whole number of weeks after the Unix epoch, as far as the wall clock could tell
/// when the process first asked. Aligned windows of any length that divides a week (a minute, an
/// hour, a day) therefore begin where UTC says they do; later steps of the wall clock move nothing.
///
/// With the `tokio` feature it obeys tokio's paused time: in a build in which tokio can pause time
/// (its feature `test-util`) it asks tokio, in any other there is nothing to ask. On Linux and
/// x86-64 it then reads the processor's counter where the kernel does so itself, and elsewhere the
/// kernel. Should the two ever differ it goes by the kernel again until the counter has shown for a
/// twentieth of a second that it can be trusted. Threads on different cores may see it a few
/// nanoseconds apart, which never admits more: a state counts from the newest moment it was used at.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    #[inline]
    fn now(&self) -> Tick {
        #[cfg(feature = "tokio")]
        if paused::PAUSE_AVAILABLE {
            return Tick::from_nanos(nanos_since_anchor(tokio::time::Instant::now().into_std()));
        }
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        {
            static TSC: tsc::Tsc = tsc::Tsc::new();
            Tick::from_nanos(TSC.now(&tsc::SystemSource))
        }
        #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
        Tick::from_nanos(system_nanos())
    }
}

#[cfg(feature = "tokio")]
impl Timer for MonotonicClock {
    type Sleep = tokio::time::Sleep;

    fn sleep_until(&self, deadline: Tick) -> Self::Sleep {
        tokio::time::sleep(deadline.since(self.now()))
    }
}

/// What tokio's clock says, by which its timers go.
#[cfg(all(feature = "tokio", not(all(test, tower_throttle_loom))))]
pub(crate) fn timer_now() -> Tick {
    Tick::from_nanos(nanos_since_anchor(tokio::time::Instant::now().into_std()))
}

/// The moment `at` as tokio has it.
#[cfg(all(feature = "tokio", not(all(test, tower_throttle_loom))))]
pub(crate) fn timer_at(at: Tick) -> tokio::time::Instant {
    let now = tokio::time::Instant::now();
    let Some((first, tick)) = ANCHOR.get() else {
        // Nobody has a moment yet but its own first reading.
        return now;
    };
    let at = Duration::from_nanos(at.as_nanos());
    match at.checked_sub(*tick) {
        Some(after) => first.checked_add(after),
        None => first.checked_sub(tick.saturating_sub(at)),
    }
    .map_or(now, Into::into)
}

/// What `Instant` says, as a tick.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the system's clock"
)]
fn system_nanos() -> u64 {
    nanos_since_anchor(Instant::now())
}

/// The first reading, and the tick it stands for.
static ANCHOR: OnceLock<(Instant, Duration)> = OnceLock::new();

fn nanos_since_anchor(now: Instant) -> u64 {
    let (first, tick) = ANCHOR.get_or_init(|| (now, week_offset()));
    // A paused tokio clock may stand before the first reading.
    nanos(match now.checked_duration_since(*first) {
        Some(after) => tick.saturating_add(after),
        None => tick.saturating_sub(first.duration_since(now)),
    })
}

/// The wall clock, for clients that want to be told a moment: seconds since 1970. Nothing is decided
/// by it.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the system's clock"
)]
pub(crate) fn unix_seconds() -> u64 {
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    unix.unwrap_or_default().as_secs()
}

/// The time since the start of the week before this one, in UTC weeks counted from the Unix epoch.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the system's clock"
)]
fn week_offset() -> Duration {
    const WEEK: u64 = 7 * 86_400;
    let unix = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Duration::new(WEEK + unix.as_secs() % WEEK, unix.subsec_nanos())
}

/// A clock that moves when it is told to, for tests of code that uses a limiter.
///
/// Clones show the same time. Whoever sleeps on it is woken by the step that reaches the deadline.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{Limiter, ManualClock, Quota, TokenBucket};
///
/// let clock = ManualClock::new();
/// let limiter = Limiter::with_clock(TokenBucket::new(Quota::per_second(1)), clock.clone());
/// assert!(limiter.check().is_admitted());
/// assert!(limiter.check().is_denied());
///
/// clock.advance(Duration::from_secs(1));
/// assert!(limiter.check().is_admitted());
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<ManualState>);

#[derive(Debug)]
struct ManualState {
    now: AtomicU64,
    /// Deadlines not reached yet, each with the waker of its last poll.
    sleepers: Mutex<Vec<(Tick, Waker)>>,
}

impl Default for ManualState {
    fn default() -> Self {
        Self {
            now: AtomicU64::new(0),
            sleepers: Mutex::new(Vec::new()),
        }
    }
}

impl ManualClock {
    /// A clock that stands at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves on by `span`.
    pub fn advance(&self, span: Duration) {
        self.set(self.now().plus(span));
    }

    /// Moves to `tick`. An earlier moment than the present one changes nothing: clocks never run
    /// backwards.
    pub fn set(&self, tick: Tick) {
        self.0.now.fetch_max(tick.as_nanos(), Ordering::AcqRel);
        let now = self.now();
        let mut due = Vec::new();
        lock(&self.0.sleepers).retain(|(deadline, waker)| {
            let sleeps_on = *deadline > now;
            if !sleeps_on {
                due.push(waker.clone());
            }
            sleeps_on
        });
        // Not under the lock: a waker may poll, and a poll may sleep again.
        due.into_iter().for_each(Waker::wake);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Tick {
        Tick::from_nanos(self.0.now.load(Ordering::Acquire))
    }
}

impl Timer for ManualClock {
    type Sleep = ManualSleep;

    fn sleep_until(&self, deadline: Tick) -> ManualSleep {
        ManualSleep {
            clock: self.clone(),
            deadline,
        }
    }
}

/// Sleeps on a [`ManualClock`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct ManualSleep {
    clock: ManualClock,
    deadline: Tick,
}

impl Future for ManualSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut sleepers = lock(&self.clock.0.sleepers);
        // Read under the lock: a step before it is seen here, a step after it finds this sleeper.
        if self.clock.now() >= self.deadline {
            return Poll::Ready(());
        }
        sleepers.push((self.deadline, cx.waker().clone()));
        Poll::Pending
    }
}
