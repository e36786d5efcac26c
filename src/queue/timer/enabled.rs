//! Timers of tokio.

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

/// The longest sleep. A timer for a later moment is armed again when it fires.
const MAX_SLEEP: Duration = Duration::from_secs(365 * 86_400);

/// What drives a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// The threads of a multi-thread runtime, whatever the tasks do.
    MultiThread,
    /// The thread of a current-thread runtime, which drives it only inside `block_on`. Its tasks may
    /// outlive the last `block_on`.
    CurrentThread(ThreadId),
}

impl Driver {
    /// The driver of the runtime that this thread is in.
    pub(crate) fn current() -> Option<Self> {
        let handle = Handle::try_current().ok()?;
        Some(match handle.runtime_flavor() {
            RuntimeFlavor::CurrentThread => Self::CurrentThread(std::thread::current().id()),
            _ => Self::MultiThread,
        })
    }

    /// Whether a task that is driven by `other` can rely on this driver.
    pub(crate) fn serves(self, other: Option<Self>) -> bool {
        self == Self::MultiThread || Some(self) == other
    }
}

/// Wakes a waker at a given moment.
#[derive(Debug)]
pub(crate) struct LineTimer {
    sleep: Pin<Box<Sleep>>,
    waker: Waker,
    driver: Driver,
}

impl LineTimer {
    /// `None` if the runtime has no timers.
    pub(crate) fn new(driver: Driver, waker: impl FnOnce() -> Waker) -> Option<Self> {
        // A panic is tokio's only sign that a runtime has no timers.
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

    /// The current time of the timers' clock.
    #[inline(never)]
    pub(crate) fn now() -> Tick {
        tokio_now()
    }

    /// Whether it has fired and has not been armed since.
    pub(crate) fn has_fired(&self) -> bool {
        self.sleep.is_elapsed()
    }

    /// Arms it for `at`. This may call wakers.
    #[inline(never)]
    pub(crate) fn arm(&mut self, at: Tick) -> TimerStatus {
        let now = tokio_now();
        let far = now.plus(MAX_SLEEP);
        let mut sleep = self.sleep.as_mut();
        sleep.as_mut().reset(tokio_instant(at.min(far)));
        // If the runtime is shutting down, it has elapsed at once, and polling it would panic.
        if !sleep.is_elapsed() {
            let mut cx = Context::from_waker(&self.waker);
            let mut sleep = pin!(unconstrained(sleep));
            let polled = catch_unwind(AssertUnwindSafe(|| sleep.as_mut().poll(&mut cx)));
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
