//! Without timers nothing waits.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

/// Never made.
#[derive(Debug)]
pub(in crate::layer) struct Pause(Infallible);

impl Pause {
    /// `None`: there is nothing to wait with.
    pub(in crate::layer) const fn new(_: Duration) -> Option<Self> {
        None
    }
}

impl Future for Pause {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        match self.0 {}
    }
}
