//! What a request has taken, and where it stands in line for it.

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
use crate::decision::{CompactDecision, Decision, Verdict};
use crate::queue::{CostOutcome, LineTimer, Lines, Order, QueuePosition, WaitOutcome};
use crate::quota::Quota;
use crate::respond::Settle;

/// Polls once, on the spot. A future that is not ready is polled again by whoever waits for it.
#[inline]
pub(super) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// The cost that a request has taken from its key.
pub(super) struct Reservation<K, L: Backend<K>> {
    state: Arc<State<L>>,
    key: K,
    cost: u64,
    stand: QueueState,
}

/// Where a request stands.
enum QueueState {
    /// In no line. When a limiter that answers on the spot was asked, or the turn came; `None` for
    /// one that asks others.
    NotQueued(Option<QueueEpoch>),
    /// It waits, with a mark if the limiter answers on the spot. So long it has had nothing for its
    /// cost, which is given back on drop.
    Queued(QueuePosition),
}

/// Why a request waits no longer, though its turn has not come.
#[derive(Clone, Copy, Debug)]
pub(super) enum WaitError {
    /// Somebody newer has its place; there may be room again after this long.
    Shed(Duration),
    /// There is nothing to wait with. It keeps its place until it is dropped.
    NoTimer,
}

/// What an alarm calls.
struct TimerWaker<L> {
    state: Weak<State<L>>,
    line: u64,
}

impl<L: Send + Sync + 'static> Wake for TimerWaker<L> {
    fn wake(self: Arc<Self>) {
        if let Some(state) = self.state.upgrade() {
            state.lines.ring(self.line, LineTimer::now());
        }
    }
}

/// When a limiter was asked, in the count of [`Lines::moves`](crate::queue::Lines::moves), which
/// begins with one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueEpoch(NonZero<u64>);

impl QueueEpoch {
    /// Now.
    #[inline]
    pub(super) fn now(lines: &Lines) -> Self {
        Self(NonZero::new(lines.moves()).unwrap_or(NonZero::<u64>::MIN))
    }
}

impl<K, L: Backend<K>> Reservation<K, L> {
    pub(super) fn new(state: Arc<State<L>>, key: K, cost: u64, asked: Option<QueueEpoch>) -> Self {
        Self {
            state,
            key,
            cost,
            stand: QueueState::NotQueued(asked),
        }
    }

    /// Whether the limiter answers on the spot, so that it and the line can change together.
    const fn is_immediate(&self) -> bool {
        match &self.stand {
            QueueState::NotQueued(asked) => asked.is_some(),
            QueueState::Queued(ticket) => ticket.mark(),
        }
    }

    pub(super) fn state(&self) -> &Arc<State<L>> {
        &self.state
    }

    /// The key, and what was taken from it.
    pub(super) fn taken(&self) -> (&K, u64) {
        (&self.key, self.cost)
    }

    /// Takes the place in line to which the limiter has said `wait`. From now until its turn comes
    /// dropping it gives the cost back.
    ///
    /// Responder how long it is until its turn as things stand, or what the limiter says now if it has
    /// taken the place back.
    pub(super) fn line_up(&mut self, mut wait: Duration, order: Order) -> Result<Duration, Decision>
    where
        K: Hash,
    {
        let now = LineTimer::now();
        let lines = &self.state.lines;
        let mut held = lines.hold(&self.key);
        // Whoever left the line since the limiter was asked has moved up everyone who was behind,
        // but this one, who was not there yet. Now nobody can leave.
        if let QueueState::NotQueued(Some(then)) = self.stand {
            if then != QueueEpoch::now(lines) {
                if let Some(again) = self.refund_and_retry(|| held.moved()) {
                    match again.wait() {
                        Some(now) => wait = now,
                        None => return Err(again),
                    }
                }
            }
        }
        let ticket = held.join(self.cost, now.plus(wait), order, self.is_immediate());
        self.stand = QueueState::Queued(ticket);
        if wait.is_zero() {
            held.release(now);
        }
        Ok(wait)
    }

    /// Gives the cost back to a limiter that answers on the spot, and takes it again.
    fn refund_and_retry(&self, moved: impl FnOnce()) -> Option<Decision> {
        let limiter = &self.state.limiter;
        let _ = poll_once(&mut limiter.apply(&self.key, Op::Refund(self.cost)));
        moved();
        match poll_once(&mut limiter.decide(&self.key, self.cost)) {
            Poll::Ready(decided) => decided.ok(),
            Poll::Pending => None,
        }
    }

    /// Ready when the request's turn has come, which it then [takes](Self::commit) or leaves to
    /// another; or why it never will.
    pub(super) fn poll_turn(&mut self, cx: &Context<'_>) -> Poll<Result<(), WaitError>> {
        let QueueState::Queued(ticket) = &self.stand else {
            return Poll::Ready(Ok(()));
        };
        let state = &self.state;
        let turn = match state.lines.ask(ticket, cx.waker()) {
            Ok(turn) => turn,
            Err(mut held) => {
                let ring = |line| TimerWaker {
                    state: Arc::downgrade(state),
                    line,
                };
                return if held.watch(|line| Arc::new(ring(line)).into()) {
                    Poll::Pending
                } else {
                    Poll::Ready(Err(WaitError::NoTimer))
                };
            }
        };
        Poll::Ready(match turn {
            WaitOutcome::Released => Ok(()),
            WaitOutcome::Shed(wait) => {
                self.commit();
                Err(WaitError::Shed(wait))
            }
        })
    }

    /// The request has nothing to do with the line any longer: its cost stays taken.
    #[inline]
    pub(super) fn commit(&mut self) {
        if let QueueState::Queued(ticket) = &self.stand {
            let asked = ticket.mark().then(|| QueueEpoch::now(&self.state.lines));
            self.stand = QueueState::NotQueued(asked);
        }
    }

    /// The decision by which the request waited, with the figures of now where they are known:
    /// others have come since.
    pub(super) fn refresh_decision(&self, waited: CompactDecision) -> CompactDecision {
        let Some(now) = self.state.limiter.look(&self.key) else {
            return waited;
        };
        CompactDecision::new(&Decision {
            verdict: waited.get().verdict,
            retry_after: None,
            ..now
        })
    }

    /// Starts to give back or to take the difference; the future tells when that is done.
    pub(super) fn settle(&self, settle: Settle) -> Option<L::Future>
    where
        K: Hash,
    {
        match self.difference(settle)? {
            Op::Refund(cost) if self.is_immediate() && self.state.lines.anyone() => {
                self.refund_to_waiters(cost)
            }
            op => Some(self.state.limiter.apply(&self.key, op)),
        }
    }

    fn difference(&self, settle: Settle) -> Option<Op> {
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

    /// Gives back what was taken before those who wait took theirs: they move up, or newcomers
    /// would be granted moments that are theirs.
    fn refund_to_waiters(&self, cost: u64) -> Option<L::Future>
    where
        K: Hash,
    {
        let mut held = self.state.lines.hold(&self.key);
        match held.move_up(cost, LineTimer::now(), || single(&self.state.limiter)) {
            CostOutcome::Keep => None,
            CostOutcome::Refund => {
                let refund = self.state.limiter.apply(&self.key, Op::Refund(cost));
                held.moved();
                Some(refund)
            }
        }
    }
}

/// The quota of a limiter that has a single one.
pub(crate) fn single<K: ?Sized, L: Backend<K>>(limiter: &L) -> Option<Quota> {
    match *limiter.quotas() {
        [quota] => Some(quota),
        _ => None,
    }
}

impl<L> State<L> {
    /// Makes room for a newcomer that was denied, by sending away whoever has waited longest. What
    /// the limiter says then.
    #[cold]
    pub(super) fn make_room<K>(
        &self,
        key: &K,
        cost: u64,
        denied: Decision,
    ) -> Option<(Decision, QueueEpoch)>
    where
        K: Hash,
        L: Backend<K>,
    {
        let retry = denied.retry_after?;
        let mut held = self.lines.hold(key);
        let mut decided = None;
        while let Some(freed) = held.shed(retry) {
            let _ = poll_once(&mut self.limiter.apply(key, Op::Refund(freed)));
            held.moved();
            let Poll::Ready(Ok(decision)) = poll_once(&mut self.limiter.decide(key, cost)) else {
                break;
            };
            decided = Some((decision, QueueEpoch::now(&self.lines)));
            if decision.verdict != Verdict::Deny {
                break;
            }
        }
        decided
    }
}

impl<K, L: Backend<K>> Drop for Reservation<K, L> {
    fn drop(&mut self) {
        let QueueState::Queued(ticket) = &self.stand else {
            return;
        };
        let limiter = &self.state.limiter;
        let mut held = self.state.lines.lock_position(ticket);
        if held.leave(ticket, self.cost, || single(limiter)) == CostOutcome::Keep {
            return;
        }
        let Some(refund) = self.difference(Settle::Refund) else {
            return;
        };
        if self.is_immediate() {
            // The line and the limiter change together.
            limiter.detach(&self.key, refund);
            held.moved();
        } else {
            drop(held);
            limiter.detach(&self.key, refund);
        }
    }
}
