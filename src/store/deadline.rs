//! The end of a call.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll},
};

use crate::clock::{MonotonicClock, Sleep, Tick, Timer};

/// Completes at a moment, on the executor that first polls it: a timer of the runtime that made the
/// call would never fire if that runtime does not run.
#[derive(Debug)]
pub(super) struct Deadline {
    at: Tick,
    sleep: Option<Sleep>,
}

impl Deadline {
    pub(super) const fn new(at: Tick) -> Self {
        Self { at, sleep: None }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self
            .sleep
            .get_or_insert_with(|| MonotonicClock.sleep_until(self.at));
        Pin::new(sleep).poll(cx)
    }
}

/// The output of `future`, or `None` if it has none at `at`. Needs no timers of a runtime.
pub(super) async fn within<F: Future>(at: Tick, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut deadline = Deadline::new(at);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => deadline.poll(cx).map(|()| None),
    })
    .await
}
