//! The port to a server: what sends the calls of a policy.

use std::{
    fmt,
    future::Future,
    pin::{Pin, pin},
};

use super::{
    breakers::{Breakers, Server},
    pending::{CallResult, Remote},
    task::catch_panic,
};
use crate::clock::Tick;
use crate::error::StoreError;
use crate::store::events::RemoteMetrics;

/// Sends the calls of one policy to a store.
pub(crate) trait Executor: Remote + fmt::Debug {
    /// What a call sends.
    type Call: fmt::Debug + Send + Sync + 'static;
    fn breakers(&self) -> &Breakers;

    /// The server that a call is sent to.
    fn server_of(&self, call: &Self::Call) -> Server;

    /// Whether calls on different keys may be sent together. They are then on one server,
    /// [`Server::Single`].
    fn supports_batching(&self) -> bool;

    /// Sends `calls`, again if they were certainly not executed and may be now. The caller enforces
    /// the deadline. An error is that of all calls; results of single calls, in the same order, show that
    /// the server replies.
    fn send(
        &self,
        calls: &[Self::Call],
    ) -> impl Future<Output = Result<Vec<CallResult<Self>>, StoreError>> + Send;
}

/// Sends `calls` to `server`, and records the result with its breaker. A panic is a permanent error.
pub(crate) async fn execute<E: Executor>(
    executor: &E,
    calls: &[E::Call],
    server: Server,
    sent_at: Tick,
) -> Result<Vec<CallResult<E>>, StoreError> {
    RemoteMetrics(E::STORE).batch_sent(calls.len());
    // Pinned here, because an argument of an async function takes twice its size there.
    let sending = pin!(executor.send(calls));
    let sent = catch_panic(E::STORE, sending).await;
    let replies = sent.and_then(|replies| replies);
    match &replies {
        Ok(_) => executor.breakers().record_success(server),
        Err(error) => executor.breakers().record_error(server, sent_at, error),
    }
    replies
}

/// The error of calls that were sent and got no reply within their deadline. It counts as a failure
/// of `server`.
pub(crate) fn time_out<E: Executor>(executor: &E, server: Server, sent_at: Tick) -> StoreError {
    let error = executor.deadline_exceeded();
    executor.breakers().record_error(server, sent_at, &error);
    error
}

/// The future of a step that few calls take. Neither its state nor its code is part of the other calls:
/// the code of a concrete future would be copied into them, with a stack of several pages.
pub(crate) fn rare<'a, F>(future: F) -> Pin<Box<dyn Future<Output = F::Output> + Send + 'a>>
where
    F: Future + Send + 'a,
{
    Box::pin(future)
}

/// The error of a call that a store replied to without a reply of its own.
pub(crate) fn missing_reply(store: &str) -> StoreError {
    StoreError::new(format!("{store}: a reply without a decision"), false)
}
