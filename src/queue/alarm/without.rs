//! Without timers nothing waits.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use crate::clock::{Clock, MonotonicClock, Tick};

/// Never made.
#[derive(Debug)]
pub(crate) struct Alarm(Infallible);

impl Alarm {
    /// `None`: there is nothing to wait with.
    pub(crate) const fn new(_: Tick) -> Option<Self> {
        None
    }

    /// The present.
    pub(crate) fn now() -> Tick {
        MonotonicClock.now()
    }

    pub(crate) fn set(self: Pin<&mut Self>, _: Tick) {
        match self.0 {}
    }
}

impl Future for Alarm {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        match self.0 {}
    }
}
