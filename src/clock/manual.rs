//! A clock that tests move.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::sleepers::{Sleepers, Wakes};
use super::{Clock, Tick};
use crate::sync::{AtomicU64, Ordering};

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
/// assert!(limiter.check(1).is_admitted());
/// assert!(limiter.check(1).is_denied());
///
/// clock.advance(Duration::from_secs(1));
/// assert!(limiter.check(1).is_admitted());
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<(AtomicU64, Sleepers)>);

impl Default for ManualClock {
    fn default() -> Self {
        Self(Arc::new((AtomicU64::new(0), Sleepers::new())))
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
        self.0.0.fetch_max(tick.as_nanos(), Ordering::AcqRel);
        let (due, _) = self.0.1.take_due(self.now());
        due.into_iter().for_each(Waker::wake);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Tick {
        Tick::from_nanos(self.0.0.load(Ordering::Acquire))
    }

    fn unix_time(&self) -> Duration {
        Duration::from_nanos(self.now().as_nanos())
    }
}

impl Wakes for ManualClock {
    fn sleepers(&self) -> &Sleepers {
        &self.0.1
    }
}
