//! A clock that tests move.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::sleepers::{SleeperId, Sleepers};
use super::{Clock, Tick, Timer};
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// A clock that moves only when a test moves it.
///
/// Clones show the same time. A step that reaches a sleeper's deadline wakes the sleeper.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{Limiter, ManualClock, Quota, TokenBucket};
///
/// let clock = ManualClock::new();
/// let limiter = Limiter::new(TokenBucket::new(Quota::per_second(1))).with_clock(clock.clone());
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
    sleepers: Mutex<Sleepers>,
}

impl Default for ManualState {
    fn default() -> Self {
        Self {
            now: AtomicU64::new(0),
            sleepers: Mutex::new(Sleepers::new()),
        }
    }
}

impl ManualClock {
    /// A clock at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves forward by `span`.
    pub fn advance(&self, span: Duration) {
        self.set(self.now().plus(span));
    }

    /// Moves to `tick`. Does nothing if `tick` is in the past: clocks never run backwards.
    pub fn set(&self, tick: Tick) {
        self.0.now.fetch_max(tick.as_nanos(), Ordering::AcqRel);
        let due = lock(&self.0.sleepers).take_due(self.now());
        due.into_iter().for_each(Waker::wake);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Tick {
        Tick::from_nanos(self.0.now.load(Ordering::Acquire))
    }

    fn unix_time(&self) -> Duration {
        Duration::from_nanos(self.now().as_nanos())
    }
}

impl Timer for ManualClock {
    type Sleep = ManualSleep;

    fn sleep_until(&self, deadline: Tick) -> ManualSleep {
        ManualSleep {
            clock: self.clone(),
            deadline,
            id: None,
        }
    }
}

/// A sleep on a [`ManualClock`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct ManualSleep {
    clock: ManualClock,
    deadline: Tick,
    id: Option<SleeperId>,
}

impl Future for ManualSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let mut sleepers = lock(&this.clock.0.sleepers);
        // Read under the lock: an earlier step is seen here, a later step finds this sleeper.
        if this.clock.now() >= this.deadline {
            return Poll::Ready(());
        }
        this.id = Some(sleepers.set(this.id, this.deadline, cx.waker()));
        Poll::Pending
    }
}

impl Drop for ManualSleep {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            // Dropped after the lock is released: dropping a waker may run a user's code.
            let waker = lock(&self.clock.0.sleepers).remove(id);
            drop(waker);
        }
    }
}
