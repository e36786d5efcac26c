//! What a request has taken, and its position in line.

use std::{
    hash::Hash,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use super::claim::{Claim, Shed, refresh_decision};
use super::keyed::AtKey;
use super::queue_epoch::QueueEpoch;
use super::state::State;
use super::waiter_refund::refund_to_waiters;
use crate::backend::{Backend, Op};
use crate::decision::{CompactDecision, Decision};
use crate::error::RateLimited;
use crate::queue::{Order, RequestSeat};
use crate::respond::Settle;

/// The cost that a request has taken from its key.
///
/// The work is done by [`Claim`], which is compiled once for all types.
pub(super) struct Reservation<K, L: Backend<K>> {
    state: Arc<State<L>>,
    key: K,
    claim: Claim,
}

impl<K, L: Backend<K>> Reservation<K, L> {
    pub(super) fn new(state: Arc<State<L>>, key: K, cost: u64, epoch: Option<QueueEpoch>) -> Self {
        Self {
            state,
            key,
            claim: Claim::new(cost, epoch),
        }
    }

    /// Notes what `decision` has taken.
    #[inline]
    pub(super) fn record(&mut self, decision: &Decision) {
        self.claim.record(decision);
    }

    pub(super) fn state(&self) -> &Arc<State<L>> {
        &self.state
    }

    pub(super) const fn key_and_cost(&self) -> (&K, u64) {
        (&self.key, self.claim.cost())
    }

    /// The line in which requests of the key wait.
    pub(super) fn line_id(&self) -> u64
    where
        K: Hash,
    {
        self.state.line_id(&self.key)
    }

    /// The backend, with the key.
    pub(super) const fn backend(&self) -> AtKey<'_, K, L> {
        AtKey {
            state: &self.state,
            key: &self.key,
        }
    }

    /// Joins the line with the wait that the backend has granted. Dropping the reservation before
    /// its turn gives the cost back.
    ///
    /// # Errors
    /// If the request cannot wait: the backend now denies it, its client's `timeout` is over before
    /// its turn, or there is no seat.
    pub(super) fn enqueue(
        &mut self,
        wait: Duration,
        order: Order,
        timeout: &dyn Fn() -> Option<Duration>,
        seat: &mut RequestSeat,
        decision: Decision,
    ) -> Result<CompactDecision, RateLimited>
    where
        K: Hash,
    {
        let line_id = self.line_id();
        let Self { state, key, claim } = self;
        let backend = AtKey { state, key };
        let joined = claim.enqueue(state, line_id, &backend, wait, order);
        claim.wait_or_deny(state, &backend, joined, timeout, seat, decision)
    }

    /// The denial of a request whose place a newer one has.
    pub(super) fn fail_wait(
        &mut self,
        shed: Shed,
        seat: &mut RequestSeat,
        decision: Decision,
    ) -> RateLimited {
        let Self { state, key, claim } = self;
        claim.fail_wait(state, &AtKey { state, key }, seat, shed, decision)
    }

    /// Ready when the turn has come, or if a newer request has its place. The request then
    /// [commits](Self::commit) or is dropped.
    pub(super) fn poll_turn(&mut self, cx: &Context<'_>) -> Poll<Result<(), Shed>> {
        let Self { state, key, claim } = self;
        claim.poll_turn(state, &AtKey { state, key }, cx)
    }

    /// Leaves the line and keeps the cost.
    pub(super) fn commit(&mut self) {
        self.claim.commit(&self.state);
    }

    /// Notes that the turn has come.
    pub(super) fn record_turn(&mut self) {
        let Self { state, key, claim } = self;
        if let Some(receipt) = claim.receipt() {
            claim.set_receipt(state.backend.receipt_at_turn(key, receipt));
        }
    }

    /// The decision by which the request waited, with the present figures if the backend knows them.
    pub(super) fn refresh_decision(&self, waited: CompactDecision) -> CompactDecision {
        refresh_decision(&self.backend(), waited)
    }

    /// Starts to refund or charge the difference. The future completes when that is done.
    pub(super) fn settle(&self, settle: Settle) -> Option<L::Future>
    where
        K: Hash,
    {
        match self.claim.settlement_op(settle)? {
            op @ (Op::Refund(..) | Op::Forgive(..))
                if self.claim.is_immediate() && self.state.lines.has_waiters() =>
            {
                let mut refund = None;
                let mut start = || refund = Some(self.state.backend.apply(&self.key, op));
                refund_to_waiters(&self.state, self.line_id(), &self.backend(), &mut start);
                refund
            }
            op => Some(self.state.backend.apply(&self.key, op)),
        }
    }
}

impl<K, L: Backend<K>> Drop for Reservation<K, L> {
    fn drop(&mut self) {
        if self.claim.is_queued() {
            let Self { state, key, claim } = self;
            claim.leave(state, &AtKey { state, key });
        }
    }
}
