//! On tokio's timers.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};

use crate::clock::Tick;
use crate::clock::timer_now;

/// What is later than this is set anew when it rings.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

pin_project! {
    /// Rings when a moment has come.
    #[derive(Debug)]
    pub(crate) struct Alarm {
        #[pin]
        sleep: Sleep,
        at: Tick,
    }
}

impl Alarm {
    /// `None` where there is nothing to wait with.
    #[expect(
        clippy::unnecessary_wraps,
        reason = "one surface with the module that has no timers"
    )]
    pub(crate) fn new(at: Tick) -> Option<Self> {
        Some(Self {
            sleep: tokio::time::sleep(span(at)),
            at,
        })
    }

    /// The present, by the clock that alarms go by.
    pub(crate) fn now() -> Tick {
        timer_now()
    }

    pub(crate) fn set(self: Pin<&mut Self>, at: Tick) {
        let this = self.project();
        if *this.at != at || this.sleep.is_elapsed() {
            *this.at = at;
            this.sleep.reset(Instant::now() + span(at));
        }
    }
}

fn span(at: Tick) -> Duration {
    at.since(timer_now()).min(LONGEST)
}

impl Future for Alarm {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.project().sleep.poll(cx)
    }
}
