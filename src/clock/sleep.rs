//! Sleeping. One thread wakes the sleepers on the default clock, in any runtime or in none.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread::{self, Thread};

use super::runtime::{self, TokioSleep};
use super::sleepers::{SleepUntil, Sleepers, Wakes};
use super::{Clock, ManualClock, MonotonicClock, Tick, Timer};

static SLEEPERS: Sleepers = Sleepers::new();

/// It is started for the first sleeper.
static THREAD: Mutex<Option<Thread>> = Mutex::new(None);

/// What the thread does.
fn wake_sleepers() {
    loop {
        let (due, next) = SLEEPERS.take_due(MonotonicClock.now());
        for waker in due {
            // A panic in one waker must not keep the others asleep.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
        // Returns at once if a sleeper has become the first one since `take_due`.
        thread::park_timeout(next.since(MonotonicClock.now()));
    }
}

impl Wakes for MonotonicClock {
    fn sleepers(&self) -> &Sleepers {
        &SLEEPERS
    }

    fn wake_earlier(&self) -> bool {
        let mut running = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = &*running {
            thread.unpark();
        } else {
            let thread = thread::Builder::new().name("tower-throttle-timer".to_owned());
            let started = thread.spawn(wake_sleepers);
            *running = started.ok().map(|started| started.thread().clone());
        }
        running.is_some()
    }
}

impl Timer for MonotonicClock {
    type Sleep = Sleep;

    fn sleep_until(&self, deadline: Tick) -> Sleep {
        Sleep(match runtime::sleep_until(deadline) {
            Some(sleep) => SleepKind::Tokio(sleep),
            None => SleepKind::Thread(SleepUntil::new(*self, deadline)),
        })
    }
}

impl Timer for ManualClock {
    type Sleep = Sleep;

    fn sleep_until(&self, deadline: Tick) -> Sleep {
        Sleep(SleepKind::Manual(SleepUntil::new(self.clone(), deadline)))
    }
}

/// A sleep on a clock of this crate.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Sleep(SleepKind);

#[derive(Debug)]
enum SleepKind {
    Tokio(TokioSleep),
    Thread(SleepUntil<MonotonicClock>),
    Manual(SleepUntil<ManualClock>),
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            SleepKind::Tokio(sleep) => sleep.as_mut().poll(cx),
            SleepKind::Thread(sleep) => Pin::new(sleep).poll(cx),
            SleepKind::Manual(sleep) => Pin::new(sleep).poll(cx),
        }
    }
}
