//! A decision of two limits, on its way.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use super::keys::KeyPair;
use super::parts::{Calls, Decided, Parts};
use crate::backend::Backend;

/// A decision of two limits; see [`And`](super::And).
///
/// # Cancel safety
/// Dropped before both limits have decided, it may leave its cost taken in one of them.
#[must_use = "futures do nothing unless polled"]
pub struct AndFuture<A, B, L1: Backend<A>, L2: Backend<B>>(Progress<A, B, L1, L2>);

enum Progress<A, B, L1: Backend<A>, L2: Backend<B>> {
    /// `None` once it has been returned.
    Done(Option<Decided>),
    /// On the heap: decisions in this process never get here.
    InFlight(Box<InFlight<A, B, L1, L2>>),
}

struct InFlight<A, B, L1: Backend<A>, L2: Backend<B>> {
    parts: Arc<Parts<L1, L2>>,
    key: KeyPair<A, B>,
    calls: Calls<L1::Future, L2::Future>,
}

impl<A, B, L1: Backend<A>, L2: Backend<B>> AndFuture<A, B, L1, L2> {
    pub(super) const fn ready(decided: Decided) -> Self {
        Self(Progress::Done(Some(decided)))
    }

    pub(super) fn pending(
        parts: Arc<Parts<L1, L2>>,
        key: KeyPair<A, B>,
        calls: Calls<L1::Future, L2::Future>,
    ) -> Self {
        Self(Progress::InFlight(Box::new(InFlight { parts, key, calls })))
    }
}

impl<A, B, L1, L2> Future for AndFuture<A, B, L1, L2>
where
    A: Unpin,
    B: Unpin,
    L1: Backend<A>,
    L2: Backend<B>,
{
    type Output = Decided;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decided> {
        match &mut self.0 {
            Progress::Done(decided) => Poll::Ready(
                decided
                    .take()
                    .expect("a future is not polled after it is ready"),
            ),
            Progress::InFlight(in_flight) => {
                let InFlight { parts, key, calls } = &mut **in_flight;
                parts.poll(key.as_refs(), calls, cx)
            }
        }
    }
}

/// Manual impl: keys must not be logged, and backends need no `Debug`.
impl<A, B, L1: Backend<A>, L2: Backend<B>> fmt::Debug for AndFuture<A, B, L1, L2> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_done = matches!(self.0, Progress::Done(_));
        f.debug_struct("AndFuture")
            .field("is_done", &is_done)
            .finish_non_exhaustive()
    }
}
