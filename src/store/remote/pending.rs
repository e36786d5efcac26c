//! A call in flight, as its caller sees it.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::sync::oneshot;

use crate::clock::Tick;
use crate::error::StoreError;
use crate::store::{deadline::Deadline, events::RemoteMetrics};

/// What callers of a limit in a store know of it.
pub(crate) trait Remote: Send + Sync + 'static {
    /// What a call gets.
    type Reply: fmt::Debug + Send + 'static;

    /// The kind of store, as errors and logs name it.
    const STORE: &'static str;

    /// How long a call may take.
    fn deadline(&self) -> Duration;

    /// The error of a call that got no reply within its deadline.
    fn deadline_exceeded(&self) -> StoreError;
}

/// The result of a call.
pub(crate) type CallResult<C> = Result<<C as Remote>::Reply, StoreError>;

/// A call that a task serves.
///
/// It ends by its deadline wherever it is polled: on another runtime than the one that it was made
/// in, or on none, and even if the runtime that carries it does not run any more.
pub(crate) struct PendingCall<C: Remote> {
    of: Arc<C>,
    reply_rx: oneshot::Receiver<CallResult<C>>,
    called_at: Tick,
    deadline: Deadline,
}

impl<C: Remote> PendingCall<C> {
    /// A call that was made at `called_at`, and what its result is sent to.
    pub(crate) fn new(of: &Arc<C>, called_at: Tick) -> (Self, oneshot::Sender<CallResult<C>>) {
        let (reply_tx, reply_rx) = oneshot::channel();
        let pending = Self {
            of: Arc::clone(of),
            reply_rx,
            called_at,
            deadline: Deadline::new(called_at.plus(of.deadline())),
        };
        (pending, reply_tx)
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<CallResult<C>> {
        let result = match Pin::new(&mut self.reply_rx).poll(cx) {
            Poll::Ready(Ok(result)) => result,
            Poll::Ready(Err(_)) => {
                let message = format!("{}: the runtime that sent the call was shut down", C::STORE);
                Err(StoreError::new(message, true))
            }
            // The task records the failure, if the call was sent at all.
            Poll::Pending if self.deadline.poll(cx).is_ready() => Err(self.of.deadline_exceeded()),
            Poll::Pending => return Poll::Pending,
        };
        RemoteMetrics(C::STORE).call_ended(
            self.called_at,
            self.of.deadline(),
            result.as_ref().err(),
        );
        Poll::Ready(result)
    }
}

/// Manual impl: a limit need not be `Debug`.
impl<C: Remote> fmt::Debug for PendingCall<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingCall").finish_non_exhaustive()
    }
}
