//! Batching: calls in flight at the same time are sent together.
//!
//! Calls are queued, and tasks send them: at most `MAX_IN_FLIGHT` batches at a time, of up to
//! `MAX_BATCH` calls. A new call starts a batch if fewer are in flight; otherwise the next batch that
//! returns takes the queue along, or as much of a long one as makes both equally long: while the server
//! executes a short batch, the client could not prepare the calls of a long one. Calls are never delayed
//! to fill a batch.
//!
//! The task of a batch ends when its reply arrives or the deadline of its last call passes. So no
//! task outlives its calls, and a dropped call leaves nothing behind.

use std::{collections::VecDeque, pin::pin, sync::Arc, time::Duration};

use super::{
    breakers::Server,
    executor::{Executor, execute, missing_reply, time_out},
    line::{Line, TaskId, Waiting},
    pending::{PendingCall, Remote},
    task::runtime,
};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::StoreError;
use crate::store::{deadline::within, events::RemoteMetrics};
use crate::sync::{Mutex, lock};

/// Batches in flight: one that the server executes, and one that is written or read.
const MAX_IN_FLIGHT: usize = 2;
/// The most calls of a batch.
const MAX_BATCH: usize = 64;
/// A batch takes so many calls even if the other one is shorter.
const MIN_LONG_BATCH: usize = 16;
/// Further calls are refused.
const MAX_QUEUED: usize = 100_000;
/// The resolution of tokio's timers.
const TIMER_TICK: Duration = Duration::from_millis(1);
/// How long after the deadline of its last call a batch may still be ending.
const BATCH_GRACE: Duration = Duration::from_millis(50);

/// Batches the calls of one policy on one connection.
#[derive(Debug)]
pub(crate) struct Batcher<E: Executor> {
    executor: Arc<E>,
    line: Mutex<Line<E::Call, E::Reply, MAX_IN_FLIGHT>>,
}

type Call<E> = Waiting<<E as Executor>::Call, <E as Remote>::Reply>;

impl<E: Executor> Batcher<E> {
    pub(crate) fn new(executor: E) -> Arc<Self> {
        Arc::new(Self {
            executor: Arc::new(executor),
            line: Mutex::new(Line::new()),
        })
    }

    /// Starts a call that was made at `now`. It ends with a reply, or with an error by the deadline.
    pub(crate) fn submit(
        self: &Arc<Self>,
        call: E::Call,
        now: Tick,
    ) -> Result<PendingCall<E>, StoreError> {
        let runtime = runtime(E::STORE)?;
        let server = self.executor.server_of(&call);
        if let Err(error) = self.executor.breakers().check(server, now) {
            RemoteMetrics(E::STORE).call_rejected();
            return Err(error);
        }
        let (pending, reply_tx) = PendingCall::new(&self.executor, now);
        let deadline = now.plus(self.executor.deadline());
        let waiting = Waiting {
            call,
            queued_at: now,
            deadline,
            reply_tx,
        };
        let batcher = Arc::clone(self);
        if !self.executor.supports_batching() {
            runtime.spawn(async move { batcher.send(vec![waiting], server).await });
            return Ok(pending);
        }
        let mut line = lock(&self.line);
        if line.len() >= MAX_QUEUED {
            RemoteMetrics(E::STORE).call_rejected();
            let message = format!("{}: too many calls are queued", E::STORE);
            return Err(StoreError::not_sent(message));
        }
        let task = line.push(waiting, now, deadline.plus(BATCH_GRACE));
        drop(line);
        RemoteMetrics(E::STORE).call_queued();
        if let Some(id) = task {
            runtime.spawn(BatchTask { batcher, id }.run());
        }
        Ok(pending)
    }

    async fn send(&self, queued: Vec<Call<E>>, server: Server) {
        // Calls that were dropped, or whose deadline passed, are not sent, and not charged.
        let now = MonotonicClock.now();
        let (queued, expired): (Vec<_>, Vec<_>) = queued
            .into_iter()
            .filter(|queued| !queued.reply_tx.is_closed())
            .partition(|queued| queued.deadline > now);
        for call in expired {
            let _ = call.reply_tx.send(Err(self.executor.deadline_exceeded()));
        }
        if queued.is_empty() {
            return;
        }
        let (calls, mut waiting): (Vec<_>, VecDeque<_>) = queued
            .into_iter()
            .map(|call| (call.call, (call.deadline, call.queued_at, call.reply_tx)))
            .unzip();

        let mut expired = 0;
        let mut executing = pin!(execute(&*self.executor, &calls, server, now));
        let replies = loop {
            let Some((deadline, ..)) = waiting.front() else {
                return;
            };
            if let Some(replies) = within(*deadline, executing.as_mut()).await {
                break replies;
            }
            // The other calls keep waiting, except those that expire before the next timer tick.
            // What was sent is not sent again.
            let soon = MonotonicClock.now().plus(TIMER_TICK);
            let over = waiting
                .iter()
                .take_while(|(deadline, ..)| *deadline <= soon);
            let over = over.count().max(1);
            for (_, queued_at, reply_tx) in waiting.drain(..over) {
                // Each has waited for the server since it was queued, whichever batch sent it: the
                // oldest of a batch may have been queued before the last failure that counted.
                let error = time_out(&*self.executor, server, queued_at);
                let _ = reply_tx.send(Err(error));
            }
            expired += over;
        };
        let (mut replies, error) = match replies {
            Ok(replies) => (
                Some(replies.into_iter().skip(expired)),
                missing_reply(E::STORE),
            ),
            Err(error) => (None, error),
        };
        for (.., reply_tx) in waiting {
            let reply = replies.as_mut().and_then(Iterator::next);
            let _ = reply_tx.send(reply.unwrap_or_else(|| Err(error.clone())));
        }
    }
}

/// The task that sends one batch after another.
struct BatchTask<E: Executor> {
    batcher: Arc<Batcher<E>>,
    id: TaskId,
}

impl<E: Executor> BatchTask<E> {
    async fn run(self) {
        loop {
            // Tasks that are ready to call join the batch, as those that just got their replies.
            tokio::task::yield_now().await;
            let Some(calls) = self.next_batch() else {
                return;
            };
            RemoteMetrics(E::STORE).calls_dequeued(calls.len());
            self.batcher.send(calls, Server::Single).await;
        }
    }

    /// The next calls. If there are none, ends the task under the same lock: a later call starts a new one.
    fn next_batch(&self) -> Option<Vec<Call<E>>> {
        let deadline = self.batcher.executor.deadline();
        let ends_by = MonotonicClock.now().plus(deadline).plus(BATCH_GRACE);
        let mut line = lock(&self.batcher.line);
        let calls = line.take(self.id, &(MIN_LONG_BATCH..=MAX_BATCH), ends_by)?;
        if calls.is_empty() {
            line.end(self.id);
            return None;
        }
        Some(calls)
    }
}

/// If the runtime shuts down, queued calls that no other batch would send end with an error.
impl<E: Executor> Drop for BatchTask<E> {
    fn drop(&mut self) {
        let left = lock(&self.batcher.line).end(self.id);
        RemoteMetrics(E::STORE).calls_dequeued(left.len());
    }
}

#[cfg(test)]
mod tests;
