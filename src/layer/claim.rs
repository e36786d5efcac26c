//! The cost that a request has taken, and its position in line.

use std::{
    mem,
    sync::{Arc, Weak},
    task::{Context, Poll, Wake},
    time::Duration,
};

use super::gate::Ask;
use super::keyed::{KeyedBackend, single_quota};
use super::queue_epoch::QueueEpoch;
use super::state::{LayerState, Shared};
use super::waiter_refund::{refund_before_waiters, refund_to_waiters};
use crate::backend::Op;
use crate::clock::Tick;
use crate::decision::{CompactDecision, Decision, Verdict};
use crate::error::RateLimited;
use crate::queue::{self, CostOutcome, Precedence, QueuePosition, RequestSeat, WaitOutcome};
use crate::receipt::Receipt;
use crate::respond::Settle;

/// What a request has taken and where it waits. Not generic over the key and the backend.
#[derive(Debug)]
#[expect(unnameable_types, reason = "only layers use it")]
pub struct Claim {
    cost: u64,
    /// When the cost was taken.
    receipt: Receipt,
    /// Whether it was. If not, the request was denied, and passes only because the layer is in shadow
    /// mode.
    is_taken: bool,
    /// As the request has [asked](Ask). Here they take no space.
    pub(super) figures: bool,
    pub(super) keep: bool,
    state: QueueState,
}

/// Whether a request is queued.
#[derive(Debug)]
enum QueueState {
    /// The request is not in line: not yet, or no longer. The epoch is that of the decision, or of the
    /// moment at which the request went on ([`Claim::commit`]). It is `None` if the backend does not
    /// decide at once, and after [`Claim::leave`].
    NotQueued(Option<QueueEpoch>),
    /// The request is in line. If it is dropped now, [`Claim::leave`] gives its cost back.
    Queued(QueuePosition),
}

/// Others have the place of this request, or have overtaken it for too long. There may be room again after this long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shed(Duration);

/// Releases the due waiters of a line when its timer fires.
struct TimerWaker {
    owner: Weak<Shared>,
    line_id: u64,
}

impl Wake for TimerWaker {
    fn wake(self: Arc<Self>) {
        if let Some(owner) = self.owner.upgrade() {
            owner.lines.handle_timer(self.line_id, queue::now());
        }
    }
}

impl Claim {
    pub(super) const fn new(ask: Ask, epoch: Option<QueueEpoch>) -> Self {
        Self {
            cost: ask.cost,
            receipt: Receipt::NOW,
            is_taken: true,
            figures: ask.figures,
            keep: ask.keep,
            state: QueueState::NotQueued(epoch),
        }
    }

    /// Notes what `decision` has taken.
    #[inline]
    pub(super) fn record(&mut self, decision: &Decision) {
        (self.is_taken, self.receipt) = (!decision.is_denied(), decision.receipt());
    }

    pub(super) const fn set_receipt(&mut self, receipt: Receipt) {
        self.receipt = receipt;
    }

    /// When the cost was taken; `None` if it was not.
    pub(super) fn receipt(&self) -> Option<Receipt> {
        self.is_taken.then_some(self.receipt)
    }

    /// Whether the backend decides without I/O, so that it and the line can change under one lock.
    /// Always false after [`leave`](Self::leave).
    pub(super) const fn is_immediate(&self) -> bool {
        match &self.state {
            QueueState::NotQueued(epoch) => epoch.is_some(),
            QueueState::Queued(position) => position.is_immediate(),
        }
    }

    /// Gives back what was lent to a request that does not go on.
    #[cold]
    pub(super) fn give_back(&self, backend: &dyn KeyedBackend) {
        let receipt = self.receipt().unwrap_or_default();
        backend.apply_unawaited(Op::Cancel(self.cost, receipt));
    }

    /// Joins the line and returns the expected wait. The wait is zero if the request is released at
    /// once. If a cost was refunded since the decision, the cost is taken again first. If that is
    /// denied, the request does not join and the denial is returned.
    pub(super) fn enqueue(
        &mut self,
        layer: &LayerState,
        line_id: u64,
        backend: &dyn KeyedBackend,
        mut wait: Duration,
        place: Precedence,
    ) -> Result<Duration, Decision> {
        let now = queue::now();
        let lines = &layer.lines;
        let mut line = lines.lock_line(line_id);
        // A refund since the decision has moved the waiters up, but not this request, which was not in
        // line. So it gives its cost back and takes it again, for the earlier time. No further refund
        // can come in between, because the line is locked.
        if let QueueState::NotQueued(Some(then)) = self.state {
            if then != QueueEpoch::current(lines) {
                let receipt = self.receipt().unwrap_or_default();
                backend.apply_now(Op::Cancel(self.cost, receipt));
                line.advance_epoch();
                if let Some(again) = backend.apply_now(Op::Take(self.cost)) {
                    self.record(&again);
                    match again.wait() {
                        Some(new_wait) => wait = new_wait,
                        None => return Err(again),
                    }
                }
            }
        }
        let position = line.join(self.cost, now.plus(wait), place, self.is_immediate());
        if wait.is_zero() {
            line.release(now);
        }
        // At the back of the line, the request is released at the last slot. Before others it is told
        // the wait that the backend has granted. It may be released earlier, at the slot of a waiter
        // that it overtakes, or later, if it is overtaken itself.
        if wait.is_zero() || line.is_last(&position) {
            wait = line.wait_of_last(&position, now).unwrap_or_default();
        }
        self.state = QueueState::Queued(position);
        Ok(wait)
    }

    /// Finishes [`enqueue`](Self::enqueue). Returns the decision if the request is admitted or may
    /// wait. Denies it if it did not join, if its client waits for less, or if no seat is
    /// free.
    pub(super) fn wait_or_deny(
        &mut self,
        layer: &LayerState,
        backend: &dyn KeyedBackend,
        joined: Result<Duration, Decision>,
        until: &dyn Fn() -> Option<Tick>,
        seat: &mut RequestSeat,
        mut decision: Decision,
    ) -> Result<CompactDecision, RateLimited> {
        let wait = match joined {
            Ok(wait) => wait,
            Err(again) => return Err(self.deny(layer, backend, seat, again, again.retry_after)),
        };
        let turn = queue::now().plus(wait);
        let over = until().map(|until| turn.since(until));
        if let Some(over) = over.filter(|over| !over.is_zero()) {
            return Err(self.deny(layer, backend, seat, decision, Some(over)));
        }
        if !wait.is_zero() && !seat.try_acquire() {
            return Err(self.deny(layer, backend, seat, decision, Some(wait)));
        }
        if decision.is_admitted() && wait.is_zero() {
            let _ = layer.record_admitted();
        } else {
            // The wait in line, which may differ from the one that the backend has granted.
            decision.verdict = Verdict::Wait(wait);
            layer.record_waited(&decision, false);
            layer.signals().record_queue_wait(wait);
        }
        Ok(CompactDecision::new(&decision))
    }

    /// The denial of a request whose place a newer one has.
    pub(super) fn fail_wait(
        &mut self,
        layer: &LayerState,
        backend: &dyn KeyedBackend,
        Shed(wait): Shed,
        seat: &mut RequestSeat,
        decision: Decision,
    ) -> RateLimited {
        self.deny(layer, backend, seat, decision, Some(wait))
    }

    /// [Leaves](Self::leave) the line, releases the seat, and records the denial.
    #[cold]
    fn deny(
        &mut self,
        layer: &LayerState,
        backend: &dyn KeyedBackend,
        seat: &mut RequestSeat,
        mut decision: Decision,
        retry_after: Option<Duration>,
    ) -> RateLimited {
        self.leave(layer, backend);
        *seat = RequestSeat::NOT_REQUIRED;
        decision.verdict = Verdict::Deny;
        decision.retry_after = retry_after;
        layer.record_denied(&decision, false);
        layer.denial_error(&|| backend.quotas(), decision)
    }

    /// Ready when the turn has come, or if a newer request has its place. The request then
    /// [commits](Self::commit) or is dropped.
    pub(super) fn poll_turn(
        &mut self,
        layer: &LayerState,
        backend: &dyn KeyedBackend,
        cx: &Context<'_>,
    ) -> Poll<Result<(), Shed>> {
        let QueueState::Queued(position) = &self.state else {
            return Poll::Ready(Ok(()));
        };
        let turn = match layer.lines.poll_outcome(position, cx.waker()) {
            Ok(turn) => turn,
            Err(mut line) => {
                line.ensure_alarm(|line_id| {
                    let owner = backend.owner();
                    Arc::new(TimerWaker { owner, line_id }).into()
                });
                return Poll::Pending;
            }
        };
        Poll::Ready(match turn {
            WaitOutcome::Released => Ok(()),
            WaitOutcome::Shed(wait) => {
                self.commit(layer);
                Err(Shed(wait))
            }
        })
    }

    /// Leaves the line, because others have overtaken the request for too long.
    #[cold]
    pub(super) fn give_up(&mut self, layer: &LayerState, backend: &dyn KeyedBackend) -> Shed {
        self.leave(layer, backend);
        let looked = backend.current_decision(self.cost);
        let wait = looked.and_then(|looked| looked.wait().or(looked.retry_after));
        Shed(wait.unwrap_or_default())
    }

    /// Leaves the line and keeps the cost.
    pub(super) fn commit(&mut self, layer: &LayerState) {
        if let QueueState::Queued(position) = &self.state {
            let epoch = position
                .is_immediate()
                .then(|| QueueEpoch::current(&layer.lines));
            self.state = QueueState::NotQueued(epoch);
        }
    }

    /// What settles the cost of a request that went on. Nothing was taken from a denied one.
    pub(super) fn settlement_op(&self, settle: Settle) -> Option<Op> {
        let receipt = self.receipt()?;
        let op = match settle {
            Settle::Keep => return None,
            Settle::Refund => Op::Refund(self.cost, receipt),
            Settle::Forgive => Op::Forgive(self.cost, receipt),
            Settle::Charge(cost) if cost < self.cost => Op::Refund(self.cost - cost, receipt),
            Settle::Charge(cost) => Op::Charge(cost - self.cost),
        };
        match op {
            Op::Refund(0, _) | Op::Forgive(0, _) | Op::Charge(0) => None,
            op => Some(op),
        }
    }

    /// Settles the cost of a request that has passed: after its end, or because it does not go on after
    /// all.
    #[cold]
    pub(super) fn settle_unawaited(
        &self,
        layer: &LayerState,
        line_id: &dyn Fn() -> u64,
        backend: &dyn KeyedBackend,
        settle: Settle,
    ) {
        let Some(op) = self.settlement_op(settle) else {
            return;
        };
        let mut apply = || backend.apply_unawaited(op);
        let gives_back = !matches!(op, Op::Charge(_));
        if gives_back && self.is_immediate() && layer.lines.has_waiters() {
            refund_to_waiters(layer, line_id(), backend, &mut apply);
        } else {
            apply();
        }
    }

    /// Removes a queued request from the line and gives its cost back, unless the line returns
    /// [`CostOutcome::Keep`]. Does nothing if the request is not queued.
    #[cold]
    pub(super) fn leave(&mut self, layer: &LayerState, backend: &dyn KeyedBackend) {
        let QueueState::Queued(position) =
            mem::replace(&mut self.state, QueueState::NotQueued(None))
        else {
            return;
        };
        let (position, immediate) = (&position, position.is_immediate());
        let mut line = layer.lines.lock_position(position);
        if immediate && !line.is_waiting(position) {
            // Its turn had come, but it did not go on. What time has returned of its cost since then is
            // not given back again.
            if let Some(refund) = self.settlement_op(Settle::Refund) {
                refund_before_waiters(&mut line, backend, &mut || backend.apply_unawaited(refund));
            }
            return;
        }
        if line.leave(position, self.cost, || single_quota(&backend.quotas())) == CostOutcome::Keep
        {
            return;
        }
        let Some(receipt) = self.receipt().filter(|_| self.cost > 0) else {
            return;
        };
        let cancel = Op::Cancel(self.cost, receipt);
        if immediate {
            // The line and the backend change together.
            backend.apply_unawaited(cancel);
            line.advance_epoch();
        } else {
            drop(line);
            backend.apply_unawaited(cancel);
        }
    }
}

/// The decision by which the request waited, with the present figures if the backend knows them.
pub(super) fn refresh_decision(
    backend: &dyn KeyedBackend,
    waited: CompactDecision,
) -> CompactDecision {
    let Some(now) = backend.current_decision(0) else {
        return waited;
    };
    CompactDecision::new(&Decision {
        verdict: waited.get().verdict,
        ..now
    })
}
