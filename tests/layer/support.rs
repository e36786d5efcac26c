//! A backend with scripted answers.

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

/// Returns the given answers in order, then admits. Records the operations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    answers: VecDeque<Answer>,
    asked: Vec<Op>,
}

#[derive(Debug)]
pub(crate) enum Answer {
    Now(Decided),
    Later(oneshot::Receiver<Decided>),
}

impl Script {
    pub(crate) fn now(answers: impl IntoIterator<Item = Decision>) -> Self {
        let script = Self::default();
        for answer in answers {
            script.push(Answer::Now(Ok(answer)));
        }
        script
    }

    /// The next answer is pending until it is sent.
    pub(crate) fn later(&self) -> oneshot::Sender<Decided> {
        let (send, receive) = oneshot::channel();
        self.push(Answer::Later(receive));
        send
    }

    pub(crate) fn push(&self, answer: Answer) {
        self.0.lock().unwrap().answers.push_back(answer);
    }

    pub(crate) fn asked(&self) -> Vec<Op> {
        self.0.lock().unwrap().asked.clone()
    }
}

impl<K: ?Sized> Backend<K> for Script {
    type Future = Answer;

    fn apply(&self, _: &K, op: Op) -> Answer {
        let mut inner = self.0.lock().unwrap();
        inner.asked.push(op);
        let next = match op {
            Op::Take(_) => inner.answers.pop_front(),
            _ => None,
        };
        next.unwrap_or(Answer::Now(Ok(admit())))
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

impl Future for Answer {
    type Output = Decided;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decided> {
        match &mut *self {
            Self::Now(decided) => Poll::Ready(decided.clone()),
            Self::Later(receive) => Pin::new(receive)
                .poll(cx)
                .map(|sent| sent.unwrap_or_else(|_| Err(StoreError::new("hung up", true)))),
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
