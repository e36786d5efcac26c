//! The time of tokio, which the tests of a program can pause, and the timers of its runtimes, which wake tasks without
//! another thread.

use std::{
    future::Future,
    panic::catch_unwind,
    pin::{Pin, pin},
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Waker},
    thread::{self, ThreadId},
    time::Duration,
};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep, sleep};

use super::Tick;
use super::system::nanos_since_anchor;

/// Tests can pause the time of a runtime with one thread.
pub(super) const IS_PAUSABLE: bool = cfg!(feature = "test-util");

/// The present moment of tokio's clock, if it can be paused.
#[inline]
pub(super) fn now() -> Option<Tick> {
    let now = || Tick::from_nanos(nanos_since_anchor(Instant::now().into_std()));
    IS_PAUSABLE.then(now)
}

pub(super) type TokioSleep = Pin<Box<Sleep>>;

/// A sleep on tokio's timers, in a runtime whose time can be paused.
pub(super) fn sleep_until(deadline: Tick) -> Option<TokioSleep> {
    let (_, thread) = of_caller()?;
    thread.filter(|_| IS_PAUSABLE)?;
    Some(Box::pin(sleep(deadline.since(now()?))))
}

/// The runtime of the caller, and its thread if it has only one.
fn of_caller() -> Option<(Handle, Option<ThreadId>)> {
    let runtime = Handle::try_current().ok()?;
    let has_one = runtime.runtime_flavor() == RuntimeFlavor::CurrentThread;
    Some((runtime, has_one.then(|| thread::current().id())))
}

/// A runtime was found whose timers are not enabled: tokio panics when they are used.
static HAS_NO_TIMERS: AtomicBool = AtomicBool::new(false);

/// A timer of a runtime.
#[derive(Debug)]
pub(super) struct RuntimeTimer {
    runtime: Handle,
    thread: Option<ThreadId>,
    sleep: TokioSleep,
}

impl RuntimeTimer {
    pub(super) fn of_caller() -> Option<Self> {
        let (runtime, thread) = of_caller().filter(|_| !HAS_NO_TIMERS.load(Ordering::Relaxed))?;
        let sleep = catch_unwind(|| Box::pin(sleep(Duration::ZERO)));
        HAS_NO_TIMERS.fetch_or(sleep.is_err(), Ordering::Relaxed);
        let sleep = sleep.ok()?;
        Some(Self {
            runtime,
            thread,
            sleep,
        })
    }

    /// Whether it is of a runtime such as the caller's.
    pub(super) fn serves_caller(&self) -> bool {
        of_caller().is_some_and(|(_, thread)| thread == self.thread)
    }

    /// Calls `waker` at `at`. Returns `false` if the runtime has been shut down.
    pub(super) fn set(&mut self, at: Tick, real_now: Tick, waker: &Waker) -> bool {
        let _entered = self.runtime.enter();
        let deadline = Instant::now() + at.since(now().unwrap_or(real_now));
        // In a runtime that is shut down it has elapsed at once, and a poll would panic.
        self.sleep.as_mut().reset(deadline);
        let mut cx = Context::from_waker(waker);
        !self.sleep.is_elapsed()
            && pin!(unconstrained(self.sleep.as_mut()))
                .poll(&mut cx)
                .is_pending()
    }
}
