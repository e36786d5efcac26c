//! For models: time stands until a model moves it, and alarms ring when the model says so.

use std::{cell::Cell, task::Waker};

use super::TimerStatus;
use crate::clock::Tick;

thread_local! {
    /// All threads of a model run on one.
    static NOW: Cell<Tick> = const { Cell::new(Tick::ZERO) };
}

/// Moves time.
pub(crate) fn set_now(now: Tick) {
    NOW.set(now);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Driver;

impl Driver {
    pub(crate) const fn here() -> Option<Self> {
        Some(Self)
    }

    pub(crate) fn serves(self, _: Option<Self>) -> bool {
        true
    }
}

#[derive(Debug)]
pub(crate) struct LineTimer {
    at: Tick,
}

impl LineTimer {
    #[expect(clippy::unnecessary_wraps, reason = "one surface with the others")]
    pub(crate) fn new(_: Driver, _: impl FnOnce() -> Waker) -> Option<Self> {
        Some(Self { at: Tick::MAX })
    }

    pub(crate) const fn driver(&self) -> Driver {
        Driver
    }

    pub(crate) fn now() -> Tick {
        NOW.get()
    }

    pub(crate) fn has_fired(&self, now: Tick) -> bool {
        self.at <= now
    }

    pub(crate) fn set(&mut self, at: Tick) -> TimerStatus {
        self.at = at;
        if at <= Self::now() {
            TimerStatus::Elapsed
        } else {
            TimerStatus::Armed
        }
    }
}
