//! The end of a call.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use crate::clock::{MonotonicClock, MonotonicSleep, Tick, Timer};

/// Completes at a moment, on the executor that first polls it: a timer of the runtime that made the
/// call would never fire if that runtime does not run.
#[derive(Debug)]
pub(crate) struct Deadline {
    at: Tick,
    sleep: Option<MonotonicSleep>,
}

impl Deadline {
    pub(crate) const fn new(at: Tick) -> Self {
        Self { at, sleep: None }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self
            .sleep
            .get_or_insert_with(|| MonotonicClock.sleep_until(self.at));
        Pin::new(sleep).poll(cx)
    }
}
