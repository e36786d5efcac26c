//! No timers: the feature `tokio` is off, and no request waits.

use std::{convert::Infallible, task::Waker};

use super::TimerStatus;
use crate::clock::{Clock, MonotonicClock, Tick};

/// Never constructed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Driver(Infallible);

impl Driver {
    pub(crate) const fn current() -> Option<Self> {
        None
    }

    pub(crate) fn serves(self, _: Option<Self>) -> bool {
        match self.0 {}
    }
}

/// Never constructed.
#[derive(Debug)]
pub(crate) struct LineTimer(Infallible);

impl LineTimer {
    pub(crate) fn new(driver: Driver, _: impl FnOnce() -> Waker) -> Option<Self> {
        match driver.0 {}
    }

    pub(crate) const fn driver(&self) -> Driver {
        match self.0 {}
    }

    /// The current time.
    pub(crate) fn now() -> Tick {
        MonotonicClock.now()
    }

    pub(crate) fn has_fired(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn arm(&mut self, _: Tick) -> TimerStatus {
        match self.0 {}
    }
}
