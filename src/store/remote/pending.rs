//! A call in flight, as its caller sees it.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use tokio::{runtime::Handle, sync::oneshot};

use super::{
    breakers::Server,
    deadline::Deadline,
    executor::{Executor, execute, time_out},
};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::StoreError;
use crate::store::events::RemoteMetrics;

/// The result of a call.
pub(crate) type CallResult<E> = Result<<E as Executor>::Reply, StoreError>;

/// A call in flight.
///
/// It ends by its deadline wherever it is polled: on another runtime than the one that it was made
/// in, or on none, and even if the runtime that carries it does not run any more.
#[derive(Debug)]
pub(crate) enum PendingCall<E: Executor> {
    /// Executed by its caller.
    Direct(DirectCall<E>),
    /// Executed by the task of a batch.
    Batched(BatchedCall<E>),
}

impl<E: Executor> PendingCall<E> {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<CallResult<E>> {
        let (poll, called_at, executor) = match self {
            Self::Direct(call) => (call.poll(cx), call.called_at, &call.executor),
            Self::Batched(call) => (call.poll(cx), call.queued_at, &call.executor),
        };
        if let Poll::Ready(result) = &poll {
            let error = result.as_ref().err();
            RemoteMetrics(E::STORE).call_ended(called_at, executor.deadline(), error);
        }
        poll
    }
}

/// A call that waits for the task of a batch.
#[derive(Debug)]
pub(crate) struct BatchedCall<E: Executor> {
    executor: Arc<E>,
    reply_rx: oneshot::Receiver<CallResult<E>>,
    queued_at: Tick,
    deadline: Deadline,
}

impl<E: Executor> BatchedCall<E> {
    pub(crate) fn new(
        executor: &Arc<E>,
        reply_rx: oneshot::Receiver<CallResult<E>>,
        queued_at: Tick,
    ) -> Self {
        Self {
            executor: Arc::clone(executor),
            reply_rx,
            queued_at,
            deadline: Deadline::new(queued_at.plus(executor.deadline())),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<CallResult<E>> {
        if let Poll::Ready(received) = Pin::new(&mut self.reply_rx).poll(cx) {
            return Poll::Ready(received.unwrap_or_else(|_| {
                let message = format!("{}: the runtime that sent the call was shut down", E::STORE);
                Err(StoreError::new(message, true))
            }));
        }
        // The batch records the failure, if the call was sent at all.
        let expired = self.deadline.poll(cx);
        expired.map(|()| Err(self.executor.deadline_exceeded()))
    }
}

type CallFuture<E> = Pin<Box<dyn Future<Output = CallResult<E>> + Send>>;

/// A call that its caller executes. If the caller drops it after it was sent, a task executes the
/// rest: its result tells whether the server replies.
pub(crate) struct DirectCall<E: Executor> {
    executor: Arc<E>,
    runtime: Handle,
    server: Server,
    called_at: Tick,
    deadline: Deadline,
    /// `None` when it is over.
    future: Option<CallFuture<E>>,
    /// It has been polled, and so the call may have been sent.
    sent: bool,
    /// The flag that a direct call is in flight, if this is the one.
    in_flight: Option<Arc<AtomicBool>>,
}

impl<E: Executor> DirectCall<E> {
    /// `in_flight` is reset when the call ends.
    pub(crate) fn new(
        executor: &Arc<E>,
        runtime: Handle,
        call: E::Call,
        server: Server,
        called_at: Tick,
        in_flight: Option<Arc<AtomicBool>>,
    ) -> Self {
        let future = run_one(Arc::clone(executor), call, server.clone());
        Self {
            executor: Arc::clone(executor),
            runtime,
            server,
            called_at,
            deadline: Deadline::new(called_at.plus(executor.deadline())),
            future: Some(Box::pin(future)),
            sent: false,
            in_flight,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<CallResult<E>> {
        if self.sent {
            if let Poll::Ready(result) = self.poll_future(cx) {
                return Poll::Ready(result);
            }
        }
        if self.future.is_some() && self.deadline.poll(cx).is_ready() {
            self.finish();
            return Poll::Ready(Err(if self.sent {
                time_out(&*self.executor, &self.server, self.called_at)
            } else {
                self.executor.deadline_exceeded()
            }));
        }
        if self.sent {
            return Poll::Pending;
        }
        self.sent = true;
        self.poll_future(cx)
    }

    fn poll_future(&mut self, cx: &mut Context<'_>) -> Poll<CallResult<E>> {
        let Some(future) = &mut self.future else {
            return Poll::Pending;
        };
        // The caller may poll it on another runtime, or on none.
        let entered = self.runtime.enter();
        let result = future.as_mut().poll(cx);
        drop(entered);
        if result.is_ready() {
            self.finish();
        }
        result
    }

    fn finish(&mut self) {
        self.future = None;
        if let Some(in_flight) = self.in_flight.take() {
            in_flight.store(false, Ordering::Release);
        }
    }
}

impl<E: Executor> Drop for DirectCall<E> {
    fn drop(&mut self) {
        let future = self.future.take();
        self.finish();
        let Some(mut future) = future.filter(|_| self.sent) else {
            return;
        };
        let (executor, server, called_at) = (
            Arc::clone(&self.executor),
            self.server.clone(),
            self.called_at,
        );
        let mut deadline = Deadline::new(called_at.plus(executor.deadline()));
        self.runtime.spawn(poll_fn(move |cx| {
            if future.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            let expired = deadline.poll(cx);
            expired.map(|()| drop(time_out(&*executor, &server, called_at)))
        }));
    }
}

async fn run_one<E: Executor>(executor: Arc<E>, call: E::Call, server: Server) -> CallResult<E> {
    let sent_at = MonotonicClock.now();
    let calls = std::slice::from_ref(&call);
    let replies = execute(&*executor, calls, &server, sent_at).await?;
    let reply = replies.into_iter().next();
    reply.unwrap_or_else(|| Err(missing_reply(E::STORE)))
}

/// The error of a call that a store replied to without a reply of its own.
pub(crate) fn missing_reply(store: &str) -> StoreError {
    StoreError::new(format!("{store}: a reply without a decision"), false)
}

/// Manual impl: futures are not `Debug`.
impl<E: Executor> fmt::Debug for DirectCall<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectCall").finish_non_exhaustive()
    }
}
