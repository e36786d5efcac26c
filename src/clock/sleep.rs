//! Sleeping on the default clock.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::monotonic::MonotonicClock;
use super::paused::{self, TokioSleep};
use super::timer_thread::ThreadSleep;
use super::{Tick, Timer};

impl Timer for MonotonicClock {
    type Sleep = MonotonicSleep;

    fn sleep_until(&self, deadline: Tick) -> MonotonicSleep {
        MonotonicSleep(match paused::sleep_until(deadline) {
            Some(sleep) => SleepKind::Tokio(sleep),
            None => SleepKind::Thread(ThreadSleep::until(deadline)),
        })
    }
}

/// A sleep on the [`MonotonicClock`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct MonotonicSleep(SleepKind);

#[derive(Debug)]
enum SleepKind {
    Tokio(TokioSleep),
    Thread(ThreadSleep),
}

impl Future for MonotonicSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            SleepKind::Tokio(sleep) => sleep.as_mut().poll(cx),
            SleepKind::Thread(sleep) => Pin::new(sleep).poll(cx),
        }
    }
}
