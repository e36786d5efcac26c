//! tokio's time, which the tests of a program can pause.

use std::pin::Pin;
use std::task::Waker;
use std::thread::{self, ThreadId};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::JoinSet;
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

/// A sleep on tokio's timers, in a runtime with one thread: only there can time be paused.
pub(super) fn sleep_until(deadline: Tick) -> Option<TokioSleep> {
    let runtime = Handle::try_current().ok()?;
    has_one_thread(&runtime).then_some(())?;
    Some(Box::pin(sleep(deadline.since(now()?))))
}

fn has_one_thread(runtime: &Handle) -> bool {
    runtime.runtime_flavor() == RuntimeFlavor::CurrentThread
}

/// A timer of a runtime with one thread.
#[derive(Debug)]
pub(super) struct RuntimeTimer {
    runtime: Handle,
    thread: ThreadId,
    /// The task that sleeps. It is cancelled when this is dropped.
    task: JoinSet<()>,
}

impl RuntimeTimer {
    /// In the runtime of this thread, if its time can be paused.
    pub(super) fn of_caller() -> Option<Self> {
        let runtime = Handle::try_current().ok()?;
        has_one_thread(&runtime).then(|| Self {
            runtime,
            thread: thread::current().id(),
            task: JoinSet::new(),
        })
    }

    pub(super) fn serves_caller(&self) -> bool {
        self.thread == thread::current().id() && Handle::try_current().is_ok()
    }

    /// Calls `waker` at `at`. Returns `false` if the runtime has been shut down.
    pub(super) fn set(&mut self, at: Tick, waker: &Waker) -> bool {
        let waker = waker.clone();
        let task = async move {
            // A test may have moved the time before the task runs.
            if let Some(sleep) = sleep_until(at).filter(|_| now() < Some(at)) {
                sleep.await;
            }
            waker.wake();
        };
        self.task = JoinSet::new();
        !self.task.spawn_on(task, &self.runtime).is_finished()
    }
}
