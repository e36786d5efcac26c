//! Sleeping on the default clock.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

#[cfg(feature = "tokio")]
use super::Clock;
use super::monotonic::MonotonicClock;
#[cfg(feature = "tokio")]
use super::paused;
use super::timer_thread::ThreadSleep;
use super::{Tick, Timer};

impl Timer for MonotonicClock {
    type Sleep = MonotonicSleep;

    fn sleep_until(&self, deadline: Tick) -> MonotonicSleep {
        #[cfg(feature = "tokio")]
        if let Some(sleep) = tokio_sleep(deadline) {
            return MonotonicSleep(SleepKind::Tokio(sleep));
        }
        MonotonicSleep(SleepKind::Thread(ThreadSleep::until(deadline)))
    }
}

/// A sleep on the [`MonotonicClock`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct MonotonicSleep(SleepKind);

#[derive(Debug)]
enum SleepKind {
    #[cfg(feature = "tokio")]
    Tokio(Pin<Box<tokio::time::Sleep>>),
    Thread(ThreadSleep),
}

impl Future for MonotonicSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            #[cfg(feature = "tokio")]
            SleepKind::Tokio(sleep) => sleep.as_mut().poll(cx),
            SleepKind::Thread(sleep) => Pin::new(sleep).poll(cx),
        }
    }
}

/// A sleep on tokio's timers, if tokio can pause time and this runtime has timers.
#[cfg(feature = "tokio")]
fn tokio_sleep(deadline: Tick) -> Option<Pin<Box<tokio::time::Sleep>>> {
    if !paused::PAUSE_AVAILABLE {
        return None;
    }
    tokio::runtime::Handle::try_current().ok()?;
    let left = deadline.since(MonotonicClock.now());
    // tokio reports that a runtime has no timers only by a panic.
    std::panic::catch_unwind(|| Box::pin(tokio::time::sleep(left))).ok()
}
