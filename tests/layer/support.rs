//! A backend with scripted results.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use tokio::sync::oneshot;
use tower_throttle::{
    Decision, Quota, StoreError, Verdict,
    store::{Backend, IntoBackend, Op},
};

pub(crate) type Decided = Result<Decision, StoreError>;

/// Returns the given results in order, then admits. Records the operations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    replies: VecDeque<Reply>,
    ops: Vec<Op>,
}

#[derive(Debug)]
pub(crate) enum Reply {
    Now(Decided),
    /// Pending in its first poll, and until it is sent; and whether it was polled.
    Later(oneshot::Receiver<Decided>, bool),
}

impl Script {
    pub(crate) fn now(replies: impl IntoIterator<Item = Decision>) -> Self {
        let script = Self::default();
        for reply in replies {
            script.push(Reply::Now(Ok(reply)));
        }
        script
    }

    /// Adds a result that is pending until it is sent.
    pub(crate) fn later(&self) -> oneshot::Sender<Decided> {
        let (send, receive) = oneshot::channel();
        self.push(Reply::Later(receive, false));
        send
    }

    pub(crate) fn push(&self, reply: Reply) {
        self.0.lock().unwrap().replies.push_back(reply);
    }

    pub(crate) fn ops(&self) -> Vec<Op> {
        self.0.lock().unwrap().ops.clone()
    }
}

impl<K: ?Sized> Backend<K> for Script {
    type Future = Reply;

    fn apply(&self, _: &K, op: Op) -> Reply {
        let mut inner = self.0.lock().unwrap();
        inner.ops.push(op);
        let next = match op {
            Op::Take(_) | Op::Reserve { .. } | Op::Reset => inner.replies.pop_front(),
            _ => None,
        };
        next.unwrap_or(Reply::Now(Ok(admit())))
    }

    fn quotas(&self) -> Vec<Quota> {
        vec![Quota::per_minute(10)]
    }
}

impl IntoBackend for Script {
    type Backend = Self;

    fn into_backend(self) -> Self {
        self
    }
}

impl Future for Reply {
    type Output = Decided;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decided> {
        match &mut *self {
            Self::Now(decided) => Poll::Ready(decided.clone()),
            Self::Later(_, was_polled @ false) => {
                *was_polled = true;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Self::Later(receive, true) => Pin::new(receive)
                .poll(cx)
                .map(|sent| sent.unwrap_or_else(|_| Err(StoreError::new("sender dropped", true)))),
        }
    }
}

pub(crate) fn admit() -> Decision {
    Decision::new(Verdict::Admit, 10, 9, None, 6_000_000_000)
}

pub(crate) fn deny() -> Decision {
    Decision::new(Verdict::Deny, 10, 0, Some(2_500_000_000), 60_000_000_000)
}

pub(crate) fn wait(span: Duration) -> Decision {
    Decision::new(Verdict::Wait(span), 10, 0, None, 60_000_000_000)
}
