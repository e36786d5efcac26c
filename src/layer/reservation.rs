//! What a request has taken from its key, and its position in line.

use std::{
    future::Future,
    hash::Hash,
    num::NonZero,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use super::state::State;
use crate::backend::{Backend, Op};
use crate::decision::{CompactDecision, Decision};
use crate::queue::{CostOutcome, LineTimer, Lines, Order, QueuePosition, WaitOutcome};
use crate::quota::Quota;
use crate::respond::Settle;

/// Polls once without a waker. A future that is pending has to be polled again by its task.
#[inline]
pub(super) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// The cost that a request has taken from its key.
pub(super) struct Reservation<K, L: Backend<K>> {
    state: Arc<State<L>>,
    key: K,
    cost: u64,
    queue_state: QueueState,
}

enum QueueState {
    /// In no line. The epoch in which an immediate backend decided, or the turn came; `None` for a
    /// backend that does I/O.
    NotQueued(Option<QueueEpoch>),
    /// Waiting, with a mark if the backend is immediate. Until its turn comes, the request has had
    /// nothing for its cost; dropping gives it back.
    Queued(QueuePosition),
}

/// Why a request stops waiting before its turn has come.
#[derive(Clone, Copy, Debug)]
pub(super) enum WaitError {
    /// A newer request has its place; there may be room again after this long.
    Shed(Duration),
    /// There is no timer to wait with. The request keeps its place until it is dropped.
    NoTimer,
}

/// What a line's timer calls.
struct TimerWaker<L> {
    state: Weak<State<L>>,
    line_id: u64,
}

impl<L: Send + Sync + 'static> Wake for TimerWaker<L> {
    fn wake(self: Arc<Self>) {
        if let Some(state) = self.state.upgrade() {
            state.lines.handle_timer(self.line_id, LineTimer::now());
        }
    }
}

/// When a backend was asked, counted in [`Lines::epoch`](crate::queue::Lines::epoch), which begins
/// with one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueEpoch(NonZero<u64>);

impl QueueEpoch {
    #[inline]
    pub(super) fn current(lines: &Lines) -> Self {
        Self(NonZero::new(lines.epoch()).unwrap_or(NonZero::<u64>::MIN))
    }
}

impl<K, L: Backend<K>> Reservation<K, L> {
    pub(super) fn new(state: Arc<State<L>>, key: K, cost: u64, epoch: Option<QueueEpoch>) -> Self {
        Self {
            state,
            key,
            cost,
            queue_state: QueueState::NotQueued(epoch),
        }
    }

    /// Whether the backend decides without I/O, so that it and the line can change under one lock.
    const fn is_immediate(&self) -> bool {
        match &self.queue_state {
            QueueState::NotQueued(epoch) => epoch.is_some(),
            QueueState::Queued(position) => position.tag(),
        }
    }

    pub(super) fn state(&self) -> &Arc<State<L>> {
        &self.state
    }

    pub(super) fn key_and_cost(&self) -> (&K, u64) {
        (&self.key, self.cost)
    }

    /// Joins the line, with the `wait` that the backend has granted. From now until its turn comes,
    /// dropping gives the cost back.
    ///
    /// Returns how long it is until its turn as things stand, zero if it has come. If the backend
    /// takes the grant back, returns what it says now.
    pub(super) fn enqueue(&mut self, mut wait: Duration, order: Order) -> Result<Duration, Decision>
    where
        K: Hash,
    {
        let now = LineTimer::now();
        let lines = &self.state.lines;
        let mut line = self.state.lock_queue(&self.key);
        // A waiter that left since the backend decided has moved up all waiters behind it, but not
        // this request, which was not in line. None can leave while the line is locked.
        if let QueueState::NotQueued(Some(then)) = self.queue_state {
            if then != QueueEpoch::current(lines) {
                if let Some(again) = self.refund_and_retry(|| line.advance_epoch()) {
                    match again.wait() {
                        Some(now) => wait = now,
                        None => return Err(again),
                    }
                }
            }
        }
        let position = line.join(self.cost, now.plus(wait), order, self.is_immediate());
        if wait.is_zero() {
            line.release(now);
        }
        // Others may be before it, whatever moment the backend has granted.
        if wait.is_zero() || order == Order::Oldest {
            wait = line.wait_of_last(&position, now).unwrap_or_default();
        }
        self.queue_state = QueueState::Queued(position);
        Ok(wait)
    }

    /// Gives the cost back to an immediate backend, and takes it again.
    fn refund_and_retry(&self, refunded: impl FnOnce()) -> Option<Decision> {
        let backend = &self.state.backend;
        let _ = poll_once(&mut backend.apply(&self.key, Op::Refund(self.cost)));
        refunded();
        match poll_once(&mut backend.decide(&self.key, self.cost)) {
            Poll::Ready(decided) => decided.ok(),
            Poll::Pending => None,
        }
    }

    /// Ready when the request's turn has come, or with the reason why it never will. The caller then
    /// [commits](Self::commit), or drops the reservation to give its turn away.
    pub(super) fn poll_turn(&mut self, cx: &Context<'_>) -> Poll<Result<(), WaitError>> {
        let QueueState::Queued(position) = &self.queue_state else {
            return Poll::Ready(Ok(()));
        };
        let state = &self.state;
        let outcome = match state.lines.poll_position(position, cx.waker()) {
            Ok(outcome) => outcome,
            Err(mut line) => {
                let timer_waker = |line_id| TimerWaker {
                    state: Arc::downgrade(state),
                    line_id,
                };
                return if line.ensure_timer(|line_id| Arc::new(timer_waker(line_id)).into()) {
                    Poll::Pending
                } else {
                    Poll::Ready(Err(WaitError::NoTimer))
                };
            }
        };
        Poll::Ready(match outcome {
            WaitOutcome::Released => Ok(()),
            WaitOutcome::Shed(wait) => {
                self.commit();
                Err(WaitError::Shed(wait))
            }
        })
    }

    /// Ends the wait: the cost stays taken from now on.
    #[inline]
    pub(super) fn commit(&mut self) {
        if let QueueState::Queued(position) = &self.queue_state {
            let is_immediate = position.tag();
            let epoch = is_immediate.then(|| QueueEpoch::current(&self.state.lines));
            self.queue_state = QueueState::NotQueued(epoch);
        }
    }

    /// The decision by which the request waited, with the current figures if they are known: other
    /// requests have come since.
    pub(super) fn refresh_decision(&self, waited: CompactDecision) -> CompactDecision {
        let Some(current) = self.state.backend.current_decision(&self.key, 0) else {
            return waited;
        };
        CompactDecision::new(&Decision {
            verdict: waited.get().verdict,
            retry_after: None,
            ..current
        })
    }

    /// Starts to give back or to take the difference. The future ends when that is done.
    pub(super) fn settle(&self, settle: Settle) -> Option<L::Future>
    where
        K: Hash,
    {
        match self.settlement_op(settle)? {
            Op::Refund(cost) if self.is_immediate() && self.state.lines.has_waiters() => {
                self.refund_to_waiters(cost)
            }
            op => Some(self.state.backend.apply(&self.key, op)),
        }
    }

    fn settlement_op(&self, settle: Settle) -> Option<Op> {
        let op = match settle {
            Settle::Keep => return None,
            Settle::Refund => Op::Refund(self.cost),
            Settle::Charge(cost) if cost < self.cost => Op::Refund(self.cost - cost),
            Settle::Charge(cost) => Op::Charge(cost - self.cost),
        };
        match op {
            Op::Refund(0) | Op::Charge(0) => None,
            op => Some(op),
        }
    }

    /// Gives back what was taken before the waiters took theirs. They move up; otherwise new requests
    /// would be granted their turns.
    fn refund_to_waiters(&self, cost: u64) -> Option<L::Future>
    where
        K: Hash,
    {
        let backend = &self.state.backend;
        let mut line = self.state.lock_queue(&self.key);
        match line.apply_refund(cost, LineTimer::now(), || single_quota(backend)) {
            CostOutcome::Keep => None,
            CostOutcome::Refund => {
                let refund = backend.apply(&self.key, Op::Refund(cost));
                line.advance_epoch();
                Some(refund)
            }
        }
    }
}

/// The quota of a backend that has a single limit.
pub(super) fn single_quota<K: ?Sized, L: Backend<K>>(backend: &L) -> Option<Quota> {
    match *backend.quotas() {
        [quota] => Some(quota),
        _ => None,
    }
}

impl<L> State<L> {
    /// Makes room for a new request that was denied, by shedding waiters: as few as possible, and
    /// none if the request would be denied all the same. Returns what the backend says then.
    #[cold]
    pub(super) fn shed_and_retry<K>(
        &self,
        key: &K,
        cost: u64,
        denied: Decision,
    ) -> Option<(Decision, QueueEpoch)>
    where
        K: Hash,
        L: Backend<K>,
    {
        if self.backend.shares_queues() {
            return None; // the waiter has another key, to which its cost belongs
        }
        let retry = denied.retry_after?;
        let mut line = self.lock_queue(key);
        let quota = || single_quota(&self.backend);
        let decide = |freed, peek| {
            let decided = self.backend.decide_after_refund(key, freed, cost, peek);
            decided.filter(|decision| !decision.is_denied())
        };
        let mut freed = 0_u64;
        let mut sums = Vec::new();
        for one in line.costs_to_shed(cost, quota) {
            freed = freed.saturating_add(one);
            sums.push(freed);
            if freed >= cost {
                break;
            }
        }
        // If that is not enough, it is not the line that denies.
        let _ = decide(freed, true)?;
        let (shed, decision) = (1..)
            .zip(sums)
            .find_map(|(shed, freed)| Some((shed, decide(freed, false)?)))?;
        for _ in 0..shed {
            line.shed(cost, retry, quota);
        }
        line.advance_epoch();
        Some((decision, QueueEpoch::current(&self.lines)))
    }
}

impl<K, L: Backend<K>> Drop for Reservation<K, L> {
    fn drop(&mut self) {
        let QueueState::Queued(position) = &self.queue_state else {
            return;
        };
        let backend = &self.state.backend;
        let mut line = self.state.lines.lock_position(position);
        if line.leave(position, self.cost, || single_quota(backend)) == CostOutcome::Keep {
            return;
        }
        let Some(refund) = self.settlement_op(Settle::Refund) else {
            return;
        };
        if self.is_immediate() {
            // The line and the backend change under one lock.
            backend.detach(&self.key, refund);
            line.advance_epoch();
        } else {
            drop(line);
            backend.detach(&self.key, refund);
        }
    }
}
