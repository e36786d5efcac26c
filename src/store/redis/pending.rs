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
    executor::{CallResult, Executor, ScriptCall},
};
use crate::clock::{MonotonicClock, MonotonicSleep, Tick, Timer};
use crate::error::StoreError;

/// A call in flight.
///
/// It ends by its deadline wherever it is polled: on another runtime than the one that it was made
/// in, or on none, and even if the runtime that carries it does not run any more.
#[derive(Debug)]
pub(super) enum PendingCall {
    /// Executed by its caller.
    Direct(DirectCall),
    /// Executed by the task of a batch.
    Batched(BatchedCall),
}

impl PendingCall {
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<CallResult> {
        match self {
            Self::Direct(call) => call.poll(cx),
            Self::Batched(call) => call.poll(cx),
        }
    }
}

/// A call that waits for the task of a batch.
#[derive(Debug)]
pub(super) struct BatchedCall {
    executor: Arc<Executor>,
    reply_rx: oneshot::Receiver<CallResult>,
    deadline: Deadline,
}

impl BatchedCall {
    pub(super) fn new(
        executor: &Arc<Executor>,
        reply_rx: oneshot::Receiver<CallResult>,
        queued_at: Tick,
    ) -> Self {
        Self {
            executor: Arc::clone(executor),
            reply_rx,
            deadline: Deadline::new(queued_at.plus(executor.deadline())),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<CallResult> {
        if let Poll::Ready(received) = Pin::new(&mut self.reply_rx).poll(cx) {
            return Poll::Ready(received.unwrap_or_else(|_| {
                let message = "Redis: the runtime that sent the call was shut down";
                Err(StoreError::new(message, true))
            }));
        }
        // The batch records the failure, if the call was sent at all.
        let expired = self.deadline.poll(cx);
        expired.map(|()| Err(self.executor.deadline_exceeded()))
    }
}

/// Completes at a moment, on the executor that first polls it: a timer of the runtime that made the
/// call would never fire if that runtime does not run.
#[derive(Debug)]
struct Deadline {
    at: Tick,
    sleep: Option<MonotonicSleep>,
}

impl Deadline {
    const fn new(at: Tick) -> Self {
        Self { at, sleep: None }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self
            .sleep
            .get_or_insert_with(|| MonotonicClock.sleep_until(self.at));
        Pin::new(sleep).poll(cx)
    }
}

type CallFuture = Pin<Box<dyn Future<Output = CallResult> + Send>>;

/// A call that its caller executes. If the caller drops it after it was sent, a task executes the
/// rest: its result tells whether the server replies.
pub(super) struct DirectCall {
    executor: Arc<Executor>,
    runtime: Handle,
    server: Server,
    called_at: Tick,
    deadline: Deadline,
    /// `None` when it is over.
    future: Option<CallFuture>,
    /// It has been polled, and so the call may have been sent.
    sent: bool,
    /// The flag that a direct call is in flight, if this is the one.
    in_flight: Option<Arc<AtomicBool>>,
}

impl DirectCall {
    /// `in_flight` is reset when the call ends.
    pub(super) fn new(
        executor: &Arc<Executor>,
        runtime: Handle,
        call: ScriptCall,
        server: Server,
        called_at: Tick,
        in_flight: Option<Arc<AtomicBool>>,
    ) -> Self {
        let future = Arc::clone(executor).run_one(call, server.clone());
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

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<CallResult> {
        if self.sent {
            if let Poll::Ready(result) = self.poll_future(cx) {
                return Poll::Ready(result);
            }
        }
        if self.future.is_some() && self.deadline.poll(cx).is_ready() {
            self.finish();
            return Poll::Ready(Err(if self.sent {
                self.executor.time_out(&self.server, self.called_at)
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

    fn poll_future(&mut self, cx: &mut Context<'_>) -> Poll<CallResult> {
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

impl Drop for DirectCall {
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
            expired.map(|()| drop(executor.time_out(&server, called_at)))
        }));
    }
}

/// Manual impl: futures are not `Debug`.
impl fmt::Debug for DirectCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectCall").finish_non_exhaustive()
    }
}
