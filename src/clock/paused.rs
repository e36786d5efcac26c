//! tokio's time, which the tests of a program can pause.

use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Waker},
    thread::{self, ThreadId},
};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep, sleep};

use super::Tick;
use super::system::nanos_since_anchor;

/// The present moment of tokio's clock.
#[expect(
    clippy::unnecessary_wraps,
    reason = "without the feature there is none"
)]
#[inline]
pub(super) fn now() -> Option<Tick> {
    Some(Tick::from_nanos(nanos_since_anchor(
        Instant::now().into_std(),
    )))
}

pub(super) type TokioSleep = Pin<Box<Sleep>>;

/// The runtime of the caller if it has one thread: only there can time be paused.
fn pausable() -> Option<Handle> {
    let runtime = Handle::try_current().ok()?;
    (runtime.runtime_flavor() == RuntimeFlavor::CurrentThread).then_some(runtime)
}

/// A sleep on tokio's timers, in a runtime whose time can be paused.
pub(super) fn sleep_until(deadline: Tick) -> Option<TokioSleep> {
    pausable()?;
    Some(Box::pin(sleep(deadline.since(now()?))))
}

/// A timer of a runtime with one thread.
#[derive(Debug)]
pub(super) struct RuntimeTimer {
    runtime: Handle,
    thread: ThreadId,
    sleep: Option<TokioSleep>,
}

impl RuntimeTimer {
    /// In the runtime of this thread, if its time can be paused.
    pub(super) fn of_caller() -> Option<Self> {
        Some(Self {
            runtime: pausable()?,
            thread: thread::current().id(),
            sleep: None,
        })
    }

    pub(super) fn serves_caller(&self) -> bool {
        self.thread == thread::current().id() && Handle::try_current().is_ok()
    }

    /// Calls `waker` at `at`. Returns `false` if the runtime has been shut down.
    pub(super) fn set(&mut self, at: Tick, waker: &Waker) -> bool {
        let _entered = self.runtime.enter();
        let Some(mut sleep) = sleep_until(at) else {
            return false;
        };
        // Registers the timer. In a runtime that is shut down it has elapsed at once, and a poll
        // would panic.
        let deadline = sleep.deadline();
        sleep.as_mut().reset(deadline);
        let mut cx = Context::from_waker(waker);
        let waits =
            !sleep.is_elapsed() && pin!(unconstrained(&mut sleep)).poll(&mut cx).is_pending();
        self.sleep = waits.then_some(sleep);
        waits
    }
}
