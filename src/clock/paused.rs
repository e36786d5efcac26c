//! tokio's time, in builds in which tokio can pause it.
//!
//! Time can only be paused with tokio's feature `test-util`, which release builds rarely enable.
//! Without it the clock does not need to ask tokio. A crate cannot see the features of another one,
//! but it can detect whether a name exists: in the block below, tokio's `pause` shadows ours if it
//! exists.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    task::{Context, Waker},
    thread::{self, ThreadId},
};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep, sleep};

use super::Tick;
use super::system::nanos_since_anchor;

/// Runs `future` in a task of the caller's runtime, if there is one.
pub(crate) fn spawn<F: Future<Output: Send> + Send + 'static>(future: F) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(future);
    }
}

mod absent {
    pub(super) struct Absent;

    #[allow(dead_code, reason = "used only if tokio has no `pause`")]
    pub(super) fn pause() -> Absent {
        Absent
    }
}

trait PauseResult {
    const EXISTS: bool;
}

impl PauseResult for absent::Absent {
    const EXISTS: bool = false;
}

impl PauseResult for () {
    const EXISTS: bool = true;
}

const fn pause_exists<T: PauseResult>(_: fn() -> T) -> bool {
    T::EXISTS
}

/// Whether time can be paused.
pub(crate) const PAUSE_AVAILABLE: bool = {
    #[allow(unused_imports, reason = "only one of the two imports is used")]
    use absent::pause;
    {
        #[allow(
            unused_imports,
            clippy::wildcard_imports,
            reason = "only one of the two imports is used; the name exists only in some builds"
        )]
        use tokio::time::*;
        pause_exists(pause)
    }
};

/// The present moment of tokio's clock, if its time can be paused.
#[inline]
pub(super) fn now() -> Option<Tick> {
    let now = || Tick::from_nanos(nanos_since_anchor(Instant::now().into_std()));
    PAUSE_AVAILABLE.then(now)
}

pub(super) type TokioSleep = Pin<Box<Sleep>>;

/// A sleep on tokio's timers, if its time can be paused and the runtime of this thread has timers.
pub(super) fn sleep_until(deadline: Tick) -> Option<TokioSleep> {
    let left = deadline.since(now()?);
    Handle::try_current().ok()?;
    // tokio reports that a runtime has no timers only by a panic.
    catch_unwind(|| Box::pin(sleep(left))).ok()
}

/// A timer of a runtime with one thread: only in such a runtime can time be paused.
#[derive(Debug)]
pub(super) struct RuntimeTimer {
    runtime: Handle,
    thread: ThreadId,
    sleep: Option<TokioSleep>,
}

impl RuntimeTimer {
    /// In the runtime of this thread, if its time can be paused.
    pub(super) fn of_caller() -> Option<Self> {
        // A runtime without timers cannot pause time.
        drop(sleep_until(Tick::MAX)?);
        let runtime = Handle::try_current().ok()?;
        let thread = thread::current().id();
        let is_one = runtime.runtime_flavor() == RuntimeFlavor::CurrentThread;
        is_one.then_some(Self {
            runtime,
            thread,
            sleep: None,
        })
    }

    pub(super) fn serves_caller(&self) -> bool {
        self.thread == thread::current().id() && Handle::try_current().is_ok()
    }

    /// Calls `waker` at `at`. Returns `false` if the runtime has been shut down.
    pub(super) fn set(&mut self, at: Tick, waker: &Waker) -> bool {
        let _entered = self.runtime.enter();
        let armed = catch_unwind(AssertUnwindSafe(|| {
            let mut sleep = sleep_until(at)?;
            // Registers the timer. In a runtime that is shut down it has elapsed at once, and a poll
            // would panic.
            let deadline = sleep.deadline();
            sleep.as_mut().reset(deadline);
            if sleep.is_elapsed() {
                return None;
            }
            let polled = pin!(unconstrained(sleep.as_mut())).poll(&mut Context::from_waker(waker));
            polled.is_pending().then_some(sleep)
        }));
        self.sleep = armed.ok().flatten();
        self.sleep.is_some()
    }
}
