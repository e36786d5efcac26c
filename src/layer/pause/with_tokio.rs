//! On tokio's timers.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::time::Sleep;

pin_project! {
    /// Ends after a while.
    #[derive(Debug)]
    pub(in crate::layer) struct Pause {
        #[pin]
        sleep: Sleep,
    }
}

impl Pause {
    /// `None` where there is nothing to wait with.
    #[expect(
        clippy::unnecessary_wraps,
        reason = "one surface with the module that has no timers"
    )]
    pub(in crate::layer) fn new(wait: Duration) -> Option<Self> {
        Some(Self {
            sleep: tokio::time::sleep(wait),
        })
    }
}

impl Future for Pause {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.project().sleep.poll(cx)
    }
}
