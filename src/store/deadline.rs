//! The end of a call.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
};

use crate::clock::{MonotonicClock, Tick, Timer};

/// The output of `future`, or `None` if it has none at `at`.
///
/// The timer is that of the executor that first polls it: one of the runtime that made the call would never fire if that
/// runtime does not run.
pub(super) async fn within<F: Future>(at: Tick, future: F) -> Option<F::Output> {
    let (mut future, mut sleep) = (pin!(future), None);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => {
            let sleep = sleep.get_or_insert_with(|| MonotonicClock.sleep_until(at));
            Pin::new(sleep).poll(cx).map(|()| None)
        }
    })
    .await
}
