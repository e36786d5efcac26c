//! Batching: calls in flight at the same time are sent together.
//!
//! A call that finds no other one in flight is executed by its caller, without a task. Further calls
//! are queued, and tasks send them: at most `MAX_IN_FLIGHT` batches at a time, of up to `MAX_BATCH`
//! calls. A new call starts a batch if fewer are in flight; otherwise the next batch that returns
//! takes the queue along, or as much of a long one as makes both equally long. Calls are never delayed
//! to fill a batch.
//!
//! The task of a batch ends when its reply arrives or the deadline of its last call passes. So no
//! task outlives its calls, and a dropped call leaves nothing behind.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{runtime::Handle, sync::oneshot};

use super::{
    breakers::Server,
    deadline::within,
    executor::{Executor, execute, outside_of_tokio, time_out},
    pending::{BatchedCall, CallResult, DirectCall, PendingCall, missing_reply},
};
use crate::clock::{Clock, MonotonicClock, Tick};
use crate::error::StoreError;
use crate::store::events::RemoteMetrics;
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
    /// Whether a caller executes its call itself. Set only under the lock of the queue.
    direct_in_flight: Arc<AtomicBool>,
    queue: Mutex<BatchQueue<E>>,
}

#[derive(Debug)]
struct BatchQueue<E: Executor> {
    /// In the order of their deadlines.
    calls: VecDeque<QueuedCall<E>>,
    in_flight: [Option<BatchSlot>; MAX_IN_FLIGHT],
    next_id: u64,
}

/// A batch in flight.
#[derive(Clone, Copy, Debug)]
struct BatchSlot {
    id: u64,
    /// The number of its calls; none before it is sent.
    len: usize,
    /// The task has ended by then, unless its runtime does not run any more. After that the slot is
    /// free for the task of another runtime.
    ends_by: Tick,
}

#[derive(Debug)]
struct QueuedCall<E: Executor> {
    call: E::Call,
    deadline: Tick,
    queued_at: Tick,
    reply_tx: oneshot::Sender<CallResult<E>>,
}

/// A call of a batch that was sent.
struct WaitingCall<E: Executor> {
    deadline: Tick,
    queued_at: Tick,
    reply_tx: oneshot::Sender<CallResult<E>>,
}

impl<E: Executor> BatchQueue<E> {
    const fn new() -> Self {
        Self {
            calls: VecDeque::new(),
            in_flight: [None; MAX_IN_FLIGHT],
            next_id: 0,
        }
    }

    /// Whether no batch is in flight.
    fn is_idle(&self) -> bool {
        self.in_flight.iter().all(Option::is_none)
    }

    /// Takes a free slot for a new batch. Returns its id.
    fn take_slot(&mut self, now: Tick, ends_by: Tick) -> Option<u64> {
        let free = |slot: &&mut Option<BatchSlot>| slot.is_none_or(|slot| slot.ends_by < now);
        let slot = self.in_flight.iter_mut().find(free)?;
        self.next_id += 1;
        let id = self.next_id;
        *slot = Some(BatchSlot {
            id,
            len: 0,
            ends_by,
        });
        Some(id)
    }

    /// How many calls the next batch in this slot takes. While the server executes a short batch, the
    /// client could not prepare the calls of a long one, so a long one leaves calls to the other slot.
    fn next_len(&self, id: u64) -> usize {
        let queued = self.calls.len();
        let other = self.in_flight.iter().flatten().find(|slot| slot.id != id);
        let even = other.map_or(queued, |other| (queued + other.len).div_ceil(2));
        queued.min(even.clamp(MIN_LONG_BATCH, MAX_BATCH))
    }

    /// The slot of a batch, unless another one has taken it.
    fn slot(&mut self, id: u64) -> Option<&mut Option<BatchSlot>> {
        let is_own = |slot: &&mut Option<BatchSlot>| slot.is_some_and(|slot| slot.id == id);
        self.in_flight.iter_mut().find(is_own)
    }
}

impl<E: Executor> Batcher<E> {
    pub(crate) fn new(executor: E) -> Arc<Self> {
        Arc::new(Self {
            executor: Arc::new(executor),
            direct_in_flight: Arc::new(AtomicBool::new(false)),
            queue: Mutex::new(BatchQueue::new()),
        })
    }

    /// Starts a call that was made at `now`. It ends with a reply, or with an error by the deadline.
    pub(crate) fn submit(
        self: &Arc<Self>,
        call: E::Call,
        now: Tick,
    ) -> Result<PendingCall<E>, StoreError> {
        let runtime = Handle::try_current().map_err(|_| outside_of_tokio(E::STORE))?;
        let server = self.executor.server_of(&call);
        if let Err(error) = self.executor.breakers().check(&server, now) {
            RemoteMetrics(E::STORE).call_rejected();
            return Err(error);
        }
        let direct = |call, in_flight| {
            let executor = &self.executor;
            let call = DirectCall::new(executor, runtime.clone(), call, server, now, in_flight);
            Ok(PendingCall::Direct(call))
        };
        if !self.executor.supports_batching() {
            return direct(call, None);
        }
        let mut queue = lock(&self.queue);
        if queue.is_idle() && !self.direct_in_flight.load(Ordering::Acquire) {
            self.direct_in_flight.store(true, Ordering::Release);
            drop(queue);
            return direct(call, Some(Arc::clone(&self.direct_in_flight)));
        }
        if queue.calls.len() >= MAX_QUEUED {
            RemoteMetrics(E::STORE).call_rejected();
            let message = format!("{}: too many calls are queued", E::STORE);
            return Err(StoreError::not_sent(message));
        }
        let (reply_tx, reply_rx) = oneshot::channel();
        let deadline = now.plus(self.executor.deadline());
        queue.calls.push_back(QueuedCall {
            call,
            deadline,
            queued_at: now,
            reply_tx,
        });
        let slot = queue.take_slot(now, deadline.plus(BATCH_GRACE));
        drop(queue);
        RemoteMetrics(E::STORE).call_queued();
        if let Some(id) = slot {
            let task = BatchTask {
                batcher: Arc::clone(self),
                id,
            };
            runtime.spawn(task.run());
        }
        let call = BatchedCall::new(&self.executor, reply_rx, now);
        Ok(PendingCall::Batched(call))
    }

    async fn run_batch(&self, queued: Vec<QueuedCall<E>>) {
        // Calls that were dropped, or whose deadline passed, are not sent, and not charged.
        let now = MonotonicClock.now();
        let (queued, expired): (Vec<_>, Vec<_>) = queued
            .into_iter()
            .filter(|queued| !queued.reply_tx.is_closed())
            .partition(|queued| queued.deadline > now);
        for QueuedCall { reply_tx, .. } in expired {
            let _ = reply_tx.send(Err(self.executor.deadline_exceeded()));
        }
        if queued.is_empty() {
            return;
        }
        let (calls, mut waiting): (Vec<_>, VecDeque<_>) = queued
            .into_iter()
            .map(|queued| {
                let waits = WaitingCall::<E> {
                    deadline: queued.deadline,
                    queued_at: queued.queued_at,
                    reply_tx: queued.reply_tx,
                };
                (queued.call, waits)
            })
            .unzip();

        let mut expired = 0;
        let server = Server::Single;
        let mut executing = pin!(execute(&*self.executor, &calls, &server, now));
        let replies = loop {
            let Some(first) = waiting.front() else {
                break None;
            };
            if let Some(replies) = within(first.deadline, executing.as_mut()).await {
                break Some(replies);
            }
            // The other calls keep waiting, except those that expire before the next timer tick.
            // What was sent is not sent again.
            let soon = MonotonicClock.now().plus(TIMER_TICK);
            let over = waiting.iter().take_while(|call| call.deadline <= soon);
            let over = over.count().max(1);
            for call in waiting.drain(..over) {
                // Each has waited for the server since it was queued, whichever batch sent it: the
                // oldest of a batch may have been queued before the last failure that counted.
                let error = time_out(&*self.executor, &server, call.queued_at);
                let _ = call.reply_tx.send(Err(error));
            }
            expired += over;
        };
        match replies {
            None => {}
            Some(Ok(replies)) => {
                let mut replies = replies.into_iter().skip(expired);
                for call in waiting {
                    let reply = replies.next();
                    let reply = reply.unwrap_or_else(|| Err(missing_reply(E::STORE)));
                    let _ = call.reply_tx.send(reply);
                }
            }
            Some(Err(error)) => {
                for call in waiting {
                    let _ = call.reply_tx.send(Err(error.clone()));
                }
            }
        }
    }
}

/// The task that sends one batch after another.
struct BatchTask<E: Executor> {
    batcher: Arc<Batcher<E>>,
    id: u64,
}

impl<E: Executor> BatchTask<E> {
    async fn run(self) {
        loop {
            // Tasks that are ready to call join the batch, as those that just got their replies.
            tokio::task::yield_now().await;
            let Some(calls) = self.next_batch() else {
                return;
            };
            self.batcher.run_batch(calls).await;
        }
    }

    /// The next calls. If there are none, frees the slot under the same lock: a later call starts a
    /// new batch.
    fn next_batch(&self) -> Option<Vec<QueuedCall<E>>> {
        let mut queue = lock(&self.batcher.queue);
        let count = queue.next_len(self.id);
        let slot = queue.slot(self.id)?;
        if count == 0 {
            *slot = None;
            return None;
        }
        let deadline = self.batcher.executor.deadline();
        let ends_by = MonotonicClock.now().plus(deadline).plus(BATCH_GRACE);
        *slot = Some(BatchSlot {
            id: self.id,
            len: count,
            ends_by,
        });
        let calls = queue.calls.drain(..count).collect();
        drop(queue);
        RemoteMetrics(E::STORE).calls_dequeued(count);
        Some(calls)
    }
}

/// If the runtime shuts down, queued calls that no other batch would send end with an error.
impl<E: Executor> Drop for BatchTask<E> {
    fn drop(&mut self) {
        let mut queue = lock(&self.batcher.queue);
        let Some(slot) = queue.slot(self.id) else {
            return;
        };
        *slot = None;
        if queue.is_idle() {
            RemoteMetrics(E::STORE).calls_dequeued(queue.calls.len());
            queue.calls.clear();
        }
    }
}

#[cfg(test)]
mod tests;
