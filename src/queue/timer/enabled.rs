//! On tokio's timers.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    task::{Context, Waker},
    thread::ThreadId,
    time::Duration,
};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::unconstrained,
    time::Sleep,
};

use super::TimerStatus;
use crate::clock::{Tick, tokio_instant, tokio_now};

/// What is later than this is set anew when it rings.
const MAX_SLEEP: Duration = Duration::from_secs(365 * 86_400);

/// What makes a timer ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// The threads of a runtime, whoever else does what.
    MultiThread,
    /// Whoever runs the runtime of one thread, which happens on this one. Perhaps nobody does any
    /// longer while its tasks are still there.
    CurrentThread(ThreadId),
}

impl Driver {
    /// Of the runtime that this thread is in.
    pub(crate) fn here() -> Option<Self> {
        let handle = Handle::try_current().ok()?;
        Some(match handle.runtime_flavor() {
            RuntimeFlavor::CurrentThread => Self::CurrentThread(std::thread::current().id()),
            _ => Self::MultiThread,
        })
    }

    /// Whether somebody who is driven by `other` can rely on it.
    pub(crate) fn serves(self, other: Option<Self>) -> bool {
        self == Self::MultiThread || Some(self) == other
    }
}

/// Rings when a moment has come.
#[derive(Debug)]
pub(crate) struct LineTimer {
    sleep: Pin<Box<Sleep>>,
    waker: Waker,
    driver: Driver,
}

impl LineTimer {
    /// `None` where there is nothing to wait with: no runtime, or one without timers.
    pub(crate) fn new(driver: Driver, waker: impl FnOnce() -> Waker) -> Option<Self> {
        // Only by its panic does tokio tell that a runtime has no timers.
        let sleep = catch_unwind(|| Box::pin(tokio::time::sleep(MAX_SLEEP))).ok()?;
        Some(Self {
            sleep,
            waker: waker(),
            driver,
        })
    }

    pub(crate) const fn driver(&self) -> Driver {
        self.driver
    }

    /// The present, by the clock that alarms go by.
    pub(crate) fn now() -> Tick {
        tokio_now()
    }

    /// Whether it has rung and not been set again.
    pub(crate) fn has_fired(&self, _: Tick) -> bool {
        self.sleep.is_elapsed()
    }

    /// Sets it anew. Wakers may be called by that.
    pub(crate) fn set(&mut self, at: Tick) -> TimerStatus {
        let now = tokio_now();
        let far = now.plus(MAX_SLEEP);
        let mut sleep = self.sleep.as_mut();
        sleep.as_mut().reset(tokio_instant(at.min(far)));
        // Where the runtime is being taken down, it is over at once; to poll it would panic.
        if !sleep.is_elapsed() {
            let mut cx = Context::from_waker(&self.waker);
            let mut rings = pin!(unconstrained(sleep));
            let polled = catch_unwind(AssertUnwindSafe(|| rings.as_mut().poll(&mut cx)));
            if polled.is_ok_and(|polled| polled.is_pending()) {
                return TimerStatus::Armed;
            }
        }
        if at <= tokio_now() {
            TimerStatus::Elapsed
        } else {
            TimerStatus::RuntimeGone
        }
    }
}
